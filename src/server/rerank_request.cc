#include "server/rerank_request.h"

#include <algorithm>
#include <numeric>

#include "server/prompt_inputs.h"
#include "server/request_fields.h"

namespace tw {
namespace {

constexpr const char* kSystem =
    "Judge whether the Document meets the requirements based on the Query and the Instruct "
    "provided. Note that the answer can only be \"yes\" or \"no\".";
constexpr const char* kInstruction =
    "Given a web search query, retrieve relevant passages that answer the query";
constexpr const char* kDocumentForms =
    "an array of 1 to 2048 documents, each a string or {\"text\": ...}";

void read_documents(RequestFields& fields, std::vector<std::string>& documents) {
  Json array;
  if (!fields.read_array("documents", array)) {
    if (!fields.failed()) fields.fail("documents", nullptr, kDocumentForms);
    return;
  }
  if (array.empty() || array.size() > kMaxPrompts) {
    return fields.fail("documents", array, kDocumentForms);
  }
  for (size_t i = 0; i < array.size(); ++i) {
    const Json& entry = array[i];
    const Json text = entry.is_object() ? entry.value("text", Json()) : entry;
    if (!text.is_string()) {
      return fields.fail(fmt::format("documents[{}]", i), entry, "a string or {\"text\": ...}");
    }
    documents.push_back(text.get<std::string>());
  }
}

void check_size(RequestFields& fields, const RerankRequest& request) {
  size_t bytes = (request.query.size() + request.instruction.size()) * request.documents.size();
  for (const std::string& document : request.documents) bytes += document.size();
  check_prompt_bytes(fields, "documents", request.documents.size(), bytes);
}

}  // namespace

ApiExpected<RerankRequest> parse_rerank_request(const Json& body) {
  RequestFields fields(body);
  RerankRequest request;
  request.instruction = kInstruction;
  if (!fields.read("query", request.query) && !fields.failed()) {
    fields.fail("query", nullptr, "a string");
  }
  read_documents(fields, request.documents);
  fields.read("instruct", request.instruction);
  request.top_n = request.documents.size();
  int64_t top_n = 0;
  if (fields.read("top_n", top_n, {.min = 1})) {
    request.top_n = std::min(request.top_n, static_cast<size_t>(top_n));
  }
  fields.read("return_documents", request.return_documents);
  fields.read("model", request.model);
  fields.read("rid", request.rid);
  check_size(fields, request);
  if (fields.failed()) return tl::unexpected(fields.take_error());
  return request;
}

Expected<std::string> rerank_prompt(const ChatTemplate& chat_template, const RerankRequest& request,
                                    const std::string& document) {
  const std::string question = fmt::format("<Instruct>: {}\n<Query>: {}\n<Document>: {}",
                                           request.instruction, request.query, document);
  const Json no_thinking = {{"enable_thinking", false}};
  const auto render = [&](const Json& messages) {
    return chat_template.render(messages, nullptr, true, no_thinking);
  };
  auto prompt = render(Json::array(
      {{{"role", "system"}, {"content", kSystem}}, {{"role", "user"}, {"content", question}}}));
  if (prompt) return prompt;
  return render(
      Json::array({{{"role", "user"}, {"content", fmt::format("{}\n\n{}", kSystem, question)}}}));
}

Expected<std::vector<int32_t>> rerank_labels(const Tokenizer& tokenizer) {
  std::vector<int32_t> labels;
  for (const char* word : {"yes", "no"}) {
    if (const auto id = tokenizer.token_to_id(word)) {
      labels.push_back(*id);
      continue;
    }
    const auto ids = tokenizer.encode(word, false);
    if (!ids) return tl::unexpected(ids.error());
    if (!ids->empty()) labels.push_back(ids->front());
  }
  if (labels.size() == 2 && labels[0] != labels[1]) return labels;
  return error(ErrorCode::unsupported,
               "this model's tokenizer cannot tell \"yes\" from \"no\" by a first token; its "
               "documents cannot be ranked");
}

Json rerank_results(const RerankRequest& request, const std::vector<double>& scores) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  order.resize(std::min(order.size(), request.top_n));
  Json results = Json::array();
  for (const size_t index : order) {
    Json result = {{"index", index}, {"relevance_score", scores[index]}};
    if (request.return_documents) result["document"] = {{"text", request.documents[index]}};
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace tw
