#include "models/tensor_parallel.h"

#include <iterator>
#include <sstream>
#include <vector>

#include "models/host_parallel.h"
#include "models/registry.h"

namespace tw {
namespace {

// The first problem of the ranks, if there are any.
template <typename Body>
Status on_all_ranks(TeamGroup& teams, const Body& body) {
  std::vector<Status> statuses(static_cast<size_t>(teams.num_ranks()));
  teams.run([&](int rank) { statuses[static_cast<size_t>(rank)] = body(rank); });
  for (Status& status : statuses) {
    if (!status) return std::move(status);
  }
  return {};
}

std::vector<int> team_sizes(TeamGroup& teams) {
  std::vector<int> sizes;
  for (int rank = 0; rank < teams.num_ranks(); ++rank) sizes.push_back(teams.team(rank).size());
  return sizes;
}

// Threads of the ranks of all hosts.
Expected<std::vector<int>> gather_sizes(HostLink& hosts, const std::vector<int>& own) {
  const auto texts = hosts.all_gather(fmt::format("{}", fmt::join(own, " ")));
  if (!texts) return tl::unexpected(texts.error());
  std::vector<int> sizes;
  for (const std::string& text : *texts) {
    std::istringstream numbers(text);
    sizes.insert(sizes.end(), std::istream_iterator<int>(numbers), {});
  }
  return sizes;
}

class TensorParallelNextToken final : public NextTokenModel {
 public:
  TensorParallelNextToken(TeamGroup& teams, std::vector<NextTokenModel*> ranks)
      : teams_(teams), ranks_(std::move(ranks)) {}

  int64_t kv_bytes_per_token() const override {
    int64_t sum = 0;
    for (const NextTokenModel* rank : ranks_) sum += rank->kv_bytes_per_token();
    return sum;
  }

  Status prepare(int64_t num_pages, int32_t page_size, int32_t max_num_tokens,
                 int32_t max_num_seqs) override {
    return on_all_ranks(teams_, [&](int rank) {
      return ranks_[static_cast<size_t>(rank)]->prepare(num_pages, page_size, max_num_tokens,
                                                        max_num_seqs);
    });
  }

  std::span<const int32_t> token_ids() const override { return ranks_.front()->token_ids(); }

  Matrix<const float> forward(const Batch& batch, Matrix<const float> previous) override {
    Matrix<const float> logits;
    teams_.run([&](int rank) {
      const auto own = ranks_[static_cast<size_t>(rank)]->forward(batch, previous);
      if (rank == 0) logits = own;
    });
    return logits;
  }

  void copy_page(int64_t from, int64_t to) override {
    for (NextTokenModel* rank : ranks_) rank->copy_page(from, to);
  }

  Matrix<const float> hidden_states() const override { return ranks_.front()->hidden_states(); }

 private:
  TeamGroup& teams_;
  const std::vector<NextTokenModel*> ranks_;
};

class TensorParallelModel final : public Model {
 public:
  explicit TensorParallelModel(TeamGroup& teams, HostLink* hosts)
      : teams_(teams),
        group_(team_sizes(teams), hosts),
        ranks_(static_cast<size_t>(teams.num_ranks())) {
    for (int rank = 0; rank < teams.num_ranks(); ++rank) communicators_.emplace_back(group_, rank);
  }

  // `shards`: of the ranks of all hosts.
  Status load(const WeightLoader& loader, const std::vector<TensorShard>& shards) {
    const Status status = on_all_ranks(teams_, [&](int rank) -> Status {
      WeightLoader own(loader.checkpoint, teams_.team(rank), loader);
      own.communicator = &communicators_[static_cast<size_t>(rank)];
      own.shard = shards[static_cast<size_t>(own.communicator->rank())];
      // Ranks read the same tensors at about the same time: one of them tells.
      if (rank > 0) own.on_progress = nullptr;
      auto model = load_model(own);
      if (!model) return forward_error(model);
      ranks_[static_cast<size_t>(rank)] = std::move(*model);
      return {};
    });
    if (!status) return status;
    limits_ = ranks_.front()->limits();
    limits_.kv_bytes_per_token = 0;
    limits_.state_bytes_per_sequence = 0;
    for (const auto& rank : ranks_) {
      limits_.kv_bytes_per_token += rank->limits().kv_bytes_per_token;
      limits_.state_bytes_per_sequence += rank->limits().state_bytes_per_sequence;
    }
    if (ranks_.front()->next_token_model() != nullptr) {
      std::vector<NextTokenModel*> parts;
      for (const auto& rank : ranks_) parts.push_back(rank->next_token_model());
      next_token_ = std::make_unique<TensorParallelNextToken>(teams_, std::move(parts));
    }
    return {};
  }

  const ModelLimits& limits() const override { return limits_; }

  Status prepare(int64_t num_pages, int32_t page_size, int32_t max_num_tokens,
                 int32_t max_num_seqs) override {
    return on_all_ranks(teams_, [&](int rank) {
      return ranks_[static_cast<size_t>(rank)]->prepare(num_pages, page_size, max_num_tokens,
                                                        max_num_seqs);
    });
  }

  void adopt_caller() override { teams_.adopt_caller(); }

  Matrix<const float> forward(const Batch& batch) override {
    Matrix<const float> logits;
    teams_.run([&](int rank) {
      const Matrix<const float> own = ranks_[static_cast<size_t>(rank)]->forward(batch);
      if (rank == 0) logits = own;
    });
    return logits;
  }

  void copy_page(int64_t from, int64_t to) override {
    for (const auto& rank : ranks_) rank->copy_page(from, to);
  }

  // All ranks have them.
  Matrix<const float> hidden_states() const override { return ranks_.front()->hidden_states(); }

  Expected<LoraAdapter> load_adapter(const LoraCheckpoint& checkpoint) const override {
    LoraAdapter whole;
    for (const auto& rank : ranks_) {
      auto part = rank->load_adapter(checkpoint);
      if (!part) return part;
      whole.ranks.push_back(std::move(part->ranks.front()));
    }
    return whole;
  }

  Matrix<const float> next_token_states() const override {
    return ranks_.front()->next_token_states();
  }
  NextTokenModel* next_token_model() override { return next_token_.get(); }

  std::vector<ExpertLayer*> expert_layers() override { return ranks_.front()->expert_layers(); }

  Status place_experts(size_t layer, const ExpertPlacement& placement) override {
    std::vector<ExpertLayer*> ranks;
    for (const auto& rank : ranks_) ranks.push_back(rank->expert_layers()[layer]);
    const size_t group_size = ranks.size() / static_cast<size_t>(placement.num_groups());
    Status status = on_all_ranks(teams_, [&](int rank) {
      std::vector<ExpertLayer*> peers;
      for (size_t i = static_cast<size_t>(rank) % group_size; i < ranks.size(); i += group_size) {
        peers.push_back(ranks[i]);
      }
      return ranks[static_cast<size_t>(rank)]->stage(placement, peers);
    });
    for (ExpertLayer* rank : ranks) status ? rank->commit() : rank->discard();
    return status;
  }

  int num_ranks() const override { return teams_.num_ranks(); }
  void add_costs(const Batch& batch, std::span<StepCost> costs) const override {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank]->add_costs(batch, costs.subspan(rank, 1));
    }
  }
  int num_threads() const override {
    int sum = 0;
    for (const auto& rank : ranks_) sum += rank->num_threads();
    return sum;
  }
  // The ranks' threads behind each other.
  void set_trace(StepTrace* trace, int first_member) override {
    for (const auto& rank : ranks_) {
      rank->set_trace(trace, first_member);
      first_member += rank->num_threads();
    }
  }

 private:
  TeamGroup& teams_;
  CommunicatorGroup group_;
  std::vector<Communicator> communicators_;
  std::vector<std::unique_ptr<Model>> ranks_;
  std::unique_ptr<NextTokenModel> next_token_;
  ModelLimits limits_;
};

}  // namespace

Expected<std::unique_ptr<Model>> load_model(const WeightLoader& loader, TeamGroup& teams,
                                            HostLink* hosts) {
  const int num_ranks = teams.num_ranks() * (hosts != nullptr ? hosts->num_hosts() : 1);
  if (const int groups = loader.experts.num_groups; num_ranks % groups != 0) {
    return error(ErrorCode::invalid_argument,
                 "--ep {}: the {} ranks (--tp) do not form as many groups of equal size; use a "
                 "divisor of {}",
                 groups, num_ranks, num_ranks);
  }
  if (num_ranks == 1) return load_model(WeightLoader(loader.checkpoint, teams.team(0), loader));
  std::vector<int> sizes = team_sizes(teams);
  if (hosts != nullptr) {
    auto of_all = gather_sizes(*hosts, sizes);
    if (!of_all) return forward_error(of_all);
    sizes = std::move(*of_all);
  }
  auto model = std::make_unique<TensorParallelModel>(teams, hosts);
  Status status = model->load(loader, make_tensor_shards(sizes));
  if (hosts != nullptr) status = hosts->agree(status);
  if (!status) return forward_error(status);
  if (hosts == nullptr) return model;
  return make_host_parallel(std::move(model), *hosts);
}

}  // namespace tw
