// GET /get_server_info: settings and the engine's counters.
#include "server/endpoints/endpoints.h"

namespace tw {

asio::awaitable<void> server_info(Service& service, HttpRequest& request, Responder& responder) {
  const ServerConfig& server = service.config();
  const EngineConfig& engine = service.engine().config();
  const EngineStats stats = service.engine().stats();
  const Json info = {
      {"model_path", service.model().path},
      {"served_model_name", service.model().name},
      {"host", server.host},
      {"port", server.port},
      {"context_length", service.engine().limits().max_position_embeddings},
      {"page_size", engine.page_size},
      {"chunked_prefill_size", engine.chunked_prefill_size},
      {"max_running_requests", engine.max_running_requests},
      {"max_queued_requests", engine.max_queued_requests},
      {"mem_fraction_static", engine.mem_fraction_static},
      {"speculative_algorithm", engine.speculative_algorithm},
      {"speculative_num_steps", engine.speculative_num_steps},
      {"speculative_eagle_topk", engine.speculative_eagle_topk},
      {"speculative_num_draft_tokens", engine.speculative_num_draft_tokens},
      {"max_total_num_tokens", stats.kv_tokens_capacity},
      {"disable_radix_cache", engine.disable_radix_cache},
      {"random_seed", engine.random_seed},
      {"max_connections", server.max_connections},
      {"max_request_size", server.max_request_bytes},
      {"drain_timeout", static_cast<double>(server.drain_timeout.count()) / 1e3},
      {"watchdog_timeout", server.watchdog_seconds},
      {"version", TW_VERSION},
      {"internal_states",
       Json::array({{{"num_running_reqs", stats.num_running},
                     {"num_queue_reqs", stats.num_queued},
                     {"num_requests_total", stats.num_requests_total},
                     {"num_requests_aborted", stats.num_requests_aborted},
                     {"num_preemptions", stats.num_preemptions},
                     {"prompt_tokens_total", stats.prompt_tokens_total},
                     {"cached_tokens_total", stats.cached_tokens_total},
                     {"generation_tokens_total", stats.generation_tokens_total},
                     {"draft_tokens_total", stats.draft_tokens_total},
                     {"accepted_draft_tokens_total", stats.accepted_draft_tokens_total},
                     {"kv_tokens_used", stats.kv_tokens_used},
                     {"kv_tokens_evictable", stats.kv_tokens_evictable},
                     {"last_step_seconds", stats.last_step_seconds},
                     {"seconds_since_progress", stats.seconds_since_progress}}})}};
  co_await responder.send(json_response(info));
}

}  // namespace tw
