#include "models/host_parallel.h"

#include <algorithm>

#include "core/check.h"
#include "models/host_messages.h"

namespace tw {
namespace {

class HostParallelModel final : public Model {
 public:
  HostParallelModel(std::unique_ptr<Model> model, HostLink& link)
      : model_(std::move(model)), link_(link), messages_(link) {}

  ~HostParallelModel() override {
    if (prepared_ && is_first()) static_cast<void>(messages_.send(HostCommand::stop));
  }

  const ModelLimits& limits() const override { return model_->limits(); }

  Expected<int32_t> agree_on_pages(Expected<int32_t> own) override {
    Status status = link_.agree(own ? Status() : Status(tl::unexpected(own.error())));
    if (!status) return forward_error(status);
    const auto texts = link_.all_gather(std::to_string(*own));
    if (!texts) return tl::unexpected(texts.error());
    int32_t least = *own;
    for (const std::string& text : *texts) least = std::min(least, std::stoi(text));
    return least;
  }

  Status prepare(int64_t num_pages, int32_t page_size, int32_t max_num_tokens,
                 int32_t max_num_seqs) override {
    Status status =
        link_.agree(model_->prepare(num_pages, page_size, max_num_tokens, max_num_seqs));
    prepared_ = status.has_value();
    if (prepared_) link_.begin_steps();
    return status;
  }

  void adopt_caller() override { model_->adopt_caller(); }

  Matrix<const float> forward(const Batch& batch) override {
    static_cast<void>(messages_.send(HostCommand::step, batch));
    return model_->forward(batch);
  }

  Matrix<const float> hidden_states() const override { return model_->hidden_states(); }

  // Of trees of guesses alone, for which nobody guesses over hosts.
  void copy_page(int64_t, int64_t) override { TW_CHECK(!"pages are copied on one host alone"); }

  Status health() const override { return link_.status(); }
  Status keep_alive() override { return messages_.send(HostCommand::ping); }

  Status follow() override {
    for (;;) {
      const auto command = messages_.receive();
      if (!command) return tl::unexpected(command.error());
      if (*command == HostCommand::stop) return {};
      if (*command == HostCommand::ping) continue;
      model_->forward(messages_.batch());
      if (!link_.status()) return link_.status();
    }
  }

  // As the first host's ranks choose, which is as all do.
  std::vector<ExpertLayer*> expert_layers() override { return model_->expert_layers(); }

  // This host's.
  int num_ranks() const override { return model_->num_ranks(); }
  void add_costs(const Batch& batch, std::span<StepCost> costs) const override {
    model_->add_costs(batch, costs);
  }
  int num_threads() const override { return model_->num_threads(); }
  void set_trace(StepTrace* trace, int first_member) override {
    model_->set_trace(trace, first_member);
  }

 private:
  bool is_first() const { return link_.host() == 0; }

  const std::unique_ptr<Model> model_;
  HostLink& link_;
  HostMessages messages_;
  bool prepared_ = false;
};

}  // namespace

std::unique_ptr<Model> make_host_parallel(std::unique_ptr<Model> model, HostLink& link) {
  return std::make_unique<HostParallelModel>(std::move(model), link);
}

}  // namespace tw
