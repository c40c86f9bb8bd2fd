#include "apps/model_session.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "apps/host_fields.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/progress.h"
#include "core/text_file.h"
#include "hub/model_fetch.h"
#include "models/tensor_parallel.h"
#include "parallel/communicator.h"
#include "parallel/host_agreement.h"
#include "weights/lora_checkpoint.h"
#include "weights/tokenizer_source.h"

namespace tw {
namespace {

// A checkpoint without a usable template still serves completions, so this is no failure of the
// whole: the reason is kept for those who ask for a chat.
Status load_chat_template(const ModelOptions& options, ModelSession& session) {
  const std::string& path = options.chat_template_path;
  const auto source = path.empty() ? session.checkpoint->chat_template() : read_text_file(path);
  if (!source && !path.empty()) {
    return error(ErrorCode::not_found, "--chat-template {}: cannot open", path);
  }
  if (!source) {
    session.chat_template_problem =
        "the checkpoint has no chat template; give one with "
        "--chat-template FILE or use completions";
    return {};
  }
  auto compiled = ChatTemplate::compile(*source, session.checkpoint->tokenizer_config());
  if (compiled) {
    session.chat_template = std::move(*compiled);
  } else if (!path.empty()) {
    return forward_error(compiled);
  } else {
    session.chat_template_problem = compiled.error().message;
    log::warn("chat template: {}", session.chat_template_problem);
  }
  return {};
}

Expected<kernels::ActivationPrecision> parse_dtype(const std::string& name) {
  if (name == "auto" || name == "bfloat16") return kernels::ActivationPrecision::bf16;
  if (name == "float32") return kernels::ActivationPrecision::f32;
  return error(ErrorCode::invalid_argument, "--dtype {}: unknown; use auto, bfloat16 or float32",
               name);
}

Expected<kernels::KvType> parse_kv_cache_dtype(const std::string& name) {
  if (name == "auto" || name == "bf16" || name == "bfloat16") return kernels::KvType::bf16;
  if (name == "fp8_e4m3") return kernels::KvType::fp8_e4m3;
  return error(ErrorCode::invalid_argument,
               "--kv-cache-dtype {}: unknown; use auto, bf16 or fp8_e4m3", name);
}

Expected<std::unique_ptr<TeamGroup>> make_teams(const ModelOptions& options) {
  PlacementOptions wanted;
  wanted.num_ranks = options.tensor_parallel_size / options.hosts.num_hosts;
  wanted.numa = options.numa;
  wanted.cpu_bind = options.cpu_bind;
  wanted.num_threads = options.threads;
  wanted.cpu_quota = usable_cpu_count();
  wanted.pin = options.pin_threads;
  auto placement = place_teams(detect_topology(), wanted);
  if (!placement) return forward_error(placement);
  if (const auto cores = static_cast<int>(usable_cpus().size());
      options.threads > cores && options.pin_threads) {
    log::warn("--threads {}: only {} cores may be used; the threads will share them",
              options.threads, cores);
  }
  return std::make_unique<TeamGroup>(*placement);
}

// Room for the adapters that are named, and for usual ones where none is.
Expected<int64_t> room_for_adapters(const ModelOptions& options) {
  constexpr int64_t kUsual = 64;
  if (options.max_lora_rank > 0) return options.max_lora_rank;
  auto paths = adapter_paths(options);
  if (!paths) return forward_error(paths);
  if (!options.lora_path.empty()) paths->emplace_back("", options.lora_path);
  int64_t rank = options.enable_lora || paths->empty() ? kUsual : 1;
  for (const auto& [name, folder] : *paths) {
    auto adapter = LoraCheckpoint::open(folder);
    if (!adapter) return forward_error(adapter);
    rank = std::max(rank, adapter->max_rank());
  }
  return rank;
}

int64_t total_bytes(const Checkpoint& checkpoint) {
  int64_t sum = 0;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    sum += static_cast<int64_t>(tensor.data.size());
  }
  return sum;
}

// Known before anything is loaded: weights that a node has no room for end up on another, and are
// read from there at every step.
void warn_of_small_nodes(const Checkpoint& checkpoint, const TeamGroup& teams, int num_ranks) {
  const int64_t share = total_bytes(checkpoint) / num_ranks;
  for (const NumaNode& node : detect_topology().nodes) {
    int64_t needed = 0;
    for (int rank = 0; rank < teams.num_ranks(); ++rank) {
      if (teams.place(rank).node == node.id) needed += share;
    }
    if (node.available_memory == 0 || needed <= node.available_memory) continue;
    log::warn(
        "node {} has {:.1f} GiB of memory to give and its ranks need about {:.1f} GiB for "
        "weights; the rest will lie on other nodes. Use more nodes (--tp), or a smaller model",
        node.id, static_cast<double>(node.available_memory) / (1 << 30),
        static_cast<double>(needed) / (1 << 30));
  }
}

// Of all ranks at the same time, as they compute.
void measure_ranks(ModelSession& session) {
  TeamGroup& teams = *session.teams;
  session.limits.resize(static_cast<size_t>(teams.num_ranks()));
  std::thread([&] {
    teams.adopt_caller();
    teams.run([&](int rank) {
      session.limits[static_cast<size_t>(rank)] = {
          teams.place(rank).node,
          measure_machine(teams.team(rank), session.features, kQuickMeasurement)};
    });
  }).join();
  for (const RankLimits& rank : session.limits) {
    log::info("this machine at most: {:.1f} GB/s read, {:.0f} GOP/s ({} threads)",
              rank.limits.read_bandwidth * 1e-9, rank.limits.operations() * 1e-9,
              teams.num_threads() / teams.num_ranks());
  }
}

// Packs a checkpoint's weights for the session's teams. On a thread of its own, which may be
// pinned: what it touches first lies where it is read.
Expected<std::unique_ptr<Model>> load_weights(const ModelOptions& options,
                                              const ModelSession& session,
                                              const Checkpoint& checkpoint, HostLink* link) {
  auto precision = parse_dtype(options.dtype);
  if (!precision) return forward_error(precision);
  auto kv_type = parse_kv_cache_dtype(options.kv_cache_dtype);
  if (!kv_type) return forward_error(kv_type);
  ProgressBar progress("loading weights", total_bytes(checkpoint) >> 20, "MiB");
  int64_t loaded = 0;
  WeightLoader loader(checkpoint, session.teams->team(0),
                      {session.features, *precision, [&](int64_t bytes) {
                         const int64_t before = loaded >> 20;
                         loaded += bytes;
                         progress.advance((loaded >> 20) - before);
                       }});
  loader.kv_type = *kv_type;
  if (options.takes_adapters()) {
    auto rank = room_for_adapters(options);
    if (!rank) return forward_error(rank);
    loader.max_lora_rank = *rank;
  }
  ExpertChoices expected;
  // A draft model's ranks need not share experts.
  if (&checkpoint == session.checkpoint.get()) {
    auto read = options.experts.expected_choices();
    if (!read) return forward_error(read);
    expected = std::move(*read);
    loader.next_token_layer = options.engine.speculative_algorithm == "NEXTN";
    loader.eagle_head = session.eagle_checkpoint.get();
    loader.experts = {options.experts.parallel_size, options.experts.num_redundant, &expected};
  }
  warn_of_small_nodes(checkpoint, *session.teams, options.tensor_parallel_size);
  if (!options.quantization.name.empty()) loader.quantization = options.quantization;
  Expected<std::unique_ptr<Model>> model;
  std::thread([&] {
    session.teams->adopt_caller();
    model = load_model(loader, *session.teams, link);
  }).join();
  return model;
}

// What the draft model says must mean the same to the model: equal ids are equal tokens.
// Vocabularies of one family may end in a few tokens more or less.
Status check_vocabulary(const Tokenizer& tokenizer, const Checkpoint& draft) {
  auto other = load_tokenizer(draft);
  if (!other) return forward_error(other);
  const int64_t common = std::min(tokenizer.vocab_size(), other->vocab_size());
  for (int32_t id = 0; id < common; ++id) {
    const auto own = tokenizer.id_to_token(id), drafted = other->id_to_token(id);
    if (own == drafted) continue;
    return error(ErrorCode::invalid_argument,
                 "--speculative-draft-model-path {}: token {} is \"{}\" there and \"{}\" in the "
                 "model; a draft model must have the same vocabulary",
                 draft.path().string(), id, drafted.value_or(""), own.value_or(""));
  }
  return {};
}

Status check_speculation(const ModelOptions& options) {
  const std::string& algorithm = options.engine.speculative_algorithm;
  const bool wanted = algorithm == "STANDALONE" || algorithm == "EAGLE3";
  if (wanted == !options.draft_model_path.empty()) return {};
  if (wanted) {
    return error(ErrorCode::invalid_argument,
                 "--speculative-algorithm {}: give the {} with --speculative-draft-model-path",
                 algorithm, algorithm == "EAGLE3" ? "head" : "smaller model");
  }
  return error(ErrorCode::invalid_argument,
               "--speculative-draft-model-path {}: used by --speculative-algorithm STANDALONE and "
               "EAGLE3 alone",
               options.draft_model_path);
}

Expected<std::unique_ptr<Checkpoint>> open_draft_checkpoint(const ModelOptions& options) {
  const auto path = fetch_model(options.draft_model_path, "main", HubSettings::from_environment());
  if (!path) return tl::unexpected(path.error());
  return Checkpoint::open(*path);
}

Expected<std::unique_ptr<Model>> load_draft_model(const ModelOptions& options,
                                                  ModelSession& session) {
  auto checkpoint = open_draft_checkpoint(options);
  if (!checkpoint) return forward_error(checkpoint);
  session.draft_checkpoint = std::move(*checkpoint);
  if (Status status = check_vocabulary(*session.tokenizer, *session.draft_checkpoint); !status) {
    return forward_error(status);
  }
  ModelOptions as_it_is = options;
  as_it_is.quantization = {};
  as_it_is.lora_paths.clear();
  as_it_is.lora_path.clear();
  as_it_is.enable_lora = false;
  return load_weights(as_it_is, session, *session.draft_checkpoint, nullptr);
}

Status load_adapter(const ModelOptions& options, ModelSession& session) {
  if (options.lora_path.empty()) return {};
  const auto checkpoint = LoraCheckpoint::open(options.lora_path);
  if (!checkpoint) return tl::unexpected(checkpoint.error());
  auto adapter = session.engine->load_adapter(*checkpoint);
  if (!adapter) return forward_error(adapter);
  session.adapter = std::move(*adapter);
  return {};
}

// EOS may be listed in both files; generation_config.json is the one that chat models complete.
std::vector<TokenId> eos_token_ids(const ModelSession& session) {
  std::vector<TokenId> ids;
  const auto add = [&ids](const Json& source) {
    const auto found = source.find("eos_token_id");
    if (found == source.end()) return;
    for (const Json& id : found->is_array() ? *found : Json::array({*found})) {
      if (id.is_number_integer()) ids.push_back(id.get<TokenId>());
    }
  };
  add(session.checkpoint->generation_config());
  add(session.checkpoint->config());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

void log_machine(const ModelSession& session) {
  const MemoryLimits memory = detect_memory_limits();
  log::info("{}; kernels: {} ({}); {}; memory {:.1f} of {:.1f} GiB free{}", cpu_model_name(),
            to_string(session.features.isa()), session.features.describe(),
            session.teams->describe(), static_cast<double>(memory.available) / (1 << 30),
            static_cast<double>(memory.total) / (1 << 30),
            memory.limited_by_cgroup ? " (cgroup limit)" : "");
}

// Machine and checkpoint.
Expected<ModelSession> open_checkpoint(const ModelOptions& options) {
  ModelSession session;
  auto features = usable_cpu_features();
  if (!features) return forward_error(features);
  session.features = *features;
  auto teams = make_teams(options);
  if (!teams) return forward_error(teams);
  session.teams = std::move(*teams);
  log_machine(session);
  options.experts.warn_of_no_effect(options.engine);
  if (options.measure_machine) measure_ranks(session);

  const auto path = options.locate();
  if (!path) return tl::unexpected(path.error());
  auto checkpoint = Checkpoint::open(*path);
  if (!checkpoint) return forward_error(checkpoint);
  session.checkpoint = std::move(*checkpoint);
  return session;
}

// What is wrong on one host is wrong for all of them.
Status agree_on_start(HostLink& link, const ModelOptions& options,
                      const Expected<ModelSession>& opened) {
  Status status = opened ? Status() : Status(tl::unexpected(opened.error()));
  if (status = link.agree(status); !status) return status;
  const auto fields = fields_of_host(options, opened->features, *opened->checkpoint);
  if (status = link.agree(fields ? Status() : Status(tl::unexpected(fields.error()))); !status) {
    return status;
  }
  return compare_hosts(link, *fields);
}

}  // namespace

Expected<Tokenizer> load_tokenizer(const Checkpoint& checkpoint) {
  auto source = checkpoint.tokenizer_source();
  if (!source) return forward_error(source);
  if (source->gguf) return Tokenizer::from_gguf(*source->gguf);
  return Tokenizer::from_json(source->tokenizer_json, checkpoint.path().string());
}

Expected<ModelSession> ModelSession::load(const ModelOptions& options, HostLink* link) {
  auto opened = open_checkpoint(options);
  if (link != nullptr) {
    if (Status status = agree_on_start(*link, options, opened); !status) {
      return forward_error(status);
    }
  }
  if (!opened) return opened;
  ModelSession session = std::move(*opened);
  if (const size_t nodes = detect_topology().nodes.size();
      nodes > 1 && options.tensor_parallel_size == 1) {
    log::info("{} memory nodes: --tp {} would give each its own part of the weights", nodes, nodes);
  }
  if (options.engine.speculative_algorithm == "EAGLE3") {
    auto head = open_draft_checkpoint(options);
    if (!head) return forward_error(head);
    session.eagle_checkpoint = std::move(*head);
  }
  auto model = load_weights(options, session, *session.checkpoint, link);
  if (!model) return forward_error(model);
  session.model = std::move(*model);
  return session;
}

Expected<ModelSession> ModelSession::open(const ModelOptions& options, HostLink* link) {
  const auto begin = std::chrono::steady_clock::now();
  if (Status status = check_speculation(options); !status) return forward_error(status);
  auto loaded = load(options, link);
  if (!loaded) return loaded;
  ModelSession session = std::move(*loaded);

  auto tokenizer = load_tokenizer(*session.checkpoint);
  if (!tokenizer) return forward_error(tokenizer);
  session.tokenizer = std::move(*tokenizer);
  if (Status status = load_chat_template(options, session); !status) return forward_error(status);

  EngineConfig engine_config = options.engine_config();
  engine_config.eos_token_ids = eos_token_ids(session);
  const int64_t kv_bytes_per_token = session.model->limits().kv_bytes_per_token;
  std::unique_ptr<Model> draft_model;
  if (options.engine.speculative_algorithm == "STANDALONE") {
    auto loaded_draft = load_draft_model(options, session);
    if (!loaded_draft) return forward_error(loaded_draft);
    draft_model = std::move(*loaded_draft);
  }
  auto engine = Engine::create(std::move(session.model), engine_config, std::move(draft_model));
  if (!engine) return forward_error(engine);
  session.engine = std::move(*engine);
  if (Status status = load_adapter(options, session); !status) return forward_error(status);
  session.load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  log::info(
      "{} ({}) loaded in {:.2f} s; KV cache for {} tokens ({} bytes each); {:.0f} MiB resident",
      options.model_path, session.checkpoint->container(), session.load_seconds,
      session.engine->stats().kv_tokens_capacity, kv_bytes_per_token,
      static_cast<double>(resident_memory()) / (1 << 20));
  return session;
}

Status ModelSession::follow(const ModelOptions& options, HostLink& link) {
  auto session = load(options, &link);
  if (!session) return forward_error(session);
  log::info("host {} of {} has loaded its part", link.host(), link.num_hosts());
  return Engine::follow(std::move(session->model), options.engine_config());
}

}  // namespace tw
