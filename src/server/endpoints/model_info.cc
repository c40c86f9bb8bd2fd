// GET /get_model_info
#include "server/endpoints/endpoints.h"

namespace tw {

asio::awaitable<void> model_info(Service& service, HttpRequest& request, Responder& responder) {
  const ServedModel& model = service.model();
  const Json info = {{"model_path", model.path},
                     {"tokenizer_path", model.path},
                     {"served_model_name", model.name},
                     {"architecture", model.architecture},
                     {"is_generation", true},
                     {"has_chat_template", model.chat_template != nullptr},
                     {"vocab_size", service.engine().limits().vocab_size},
                     {"context_length", service.engine().limits().max_position_embeddings},
                     {"preferred_sampling_params", nullptr},
                     {"generation_config", model.generation_config}};
  co_await responder.send(json_response(info));
}

}  // namespace tw
