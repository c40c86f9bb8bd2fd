#include "apps/expert_options.h"

#include "core/json.h"
#include "core/log.h"
#include "core/text_file.h"
#include "kernels/moe/router.h"
#include "parallel/communicator.h"

namespace tw {
namespace {

Expected<std::vector<int64_t>> read_layer(const Json& layer, const std::string& where) {
  const auto found = layer.is_object() ? layer.find("choices") : layer.end();
  if (!layer.is_object() || found == layer.end() || !found->is_array()) {
    return error(ErrorCode::invalid_argument,
                 "{} has no list \"choices\" of how often each expert was chosen", where);
  }
  std::vector<int64_t> choices;
  for (const Json& count : *found) {
    // Up to 2^53, so that sums of all experts stay numbers.
    if (!count.is_number_integer() || count.get<int64_t>() < 0 ||
        count.get<int64_t>() > int64_t{1} << 53) {
      return error(ErrorCode::invalid_argument, "{}: choices has {}; numbers of choices are valid",
                   where, dump_json(count));
    }
    choices.push_back(count.get<int64_t>());
  }
  return choices;
}

}  // namespace

Expected<ExpertChoices> read_expert_choices(const std::string& path) {
  const auto text = read_text_file(path);
  if (!text) return error(ErrorCode::not_found, "--init-expert-location {}: cannot open", path);
  const std::string what = "--init-expert-location " + path;
  auto json = parse_json(*text, what);
  if (!json) return forward_error(json);
  const auto layers = json->is_object() ? json->find("layers") : json->end();
  if (!json->is_object() || layers == json->end() || !layers->is_object()) {
    return error(ErrorCode::invalid_argument,
                 "{} has no object \"layers\"; it must be what /dump_expert_distribution_record "
                 "answered",
                 what);
  }
  ExpertChoices choices;
  for (const auto& [name, layer] : layers->items()) {
    auto read = read_layer(layer, what + ": " + name);
    if (!read) return forward_error(read);
    choices[name] = std::move(*read);
  }
  return choices;
}

void ExpertOptions::warn_of_no_effect(const EngineConfig& engine) const {
  if (parallel_size > 1) return;
  const auto warn = [](bool given, const char* flag) {
    if (given) log::warn("{}: without effect, since --ep 1 has one place for experts", flag);
  };
  warn(num_redundant > 0, "--ep-num-redundant-experts");
  warn(init_location != "trivial", "--init-expert-location");
  warn(engine.enable_eplb, "--enable-eplb");
}

Expected<ExpertChoices> ExpertOptions::expected_choices() const {
  if (init_location == "trivial") return ExpertChoices();
  return read_expert_choices(init_location);
}

void ExpertOptions::add_to(CLI::App& command, EngineConfig& engine) {
  constexpr const char* kGroup = "Experts";
  command
      .add_option("--expert-parallel-size,--ep-size,--ep", parallel_size,
                  "Groups that the ranks of --tp form, each of which holds some experts of a "
                  "mixture whole, instead of a part of every one")
      ->check(CLI::Range(1, CommunicatorGroup::kMaxRanks))
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option("--ep-num-redundant-experts", num_redundant,
                  "Further copies of experts in every layer: of those that are chosen most often")
      ->check(CLI::Range(0, kernels::kMaxExperts))
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option("--init-expert-location", init_location,
                  "Place experts by how often they are chosen: what "
                  "/dump_expert_distribution_record answered, as a file; trivial: all alike")
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_flag("--enable-eplb", engine.enable_eplb,
                "Move experts between the groups while requests run, so that all have as much work")
      ->group(kGroup);
  command
      .add_option("--eplb-rebalance-num-iterations", engine.eplb_rebalance_num_iterations,
                  "Steps between two looks at that")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str()
      ->group(kGroup);
}

}  // namespace tw
