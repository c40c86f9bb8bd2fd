// What structured output costs per token: the time of a mask and of an accept, over a text that
// follows the grammar, for a real vocabulary.
//
//   grammar_masks TOKENIZER.JSON
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

#include "text/grammar.h"

namespace tw {
namespace {

// Of processor time, which other programs on the machine do not lengthen.
double microseconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

struct Case {
  const char* name;
  GrammarKind kind;
  const char* grammar;
  const char* text;  // follows it
};

constexpr Case kCases[] = {
    {"json_object", GrammarKind::json_schema, R"({"type": "object"})",
     R"({"title": "A tale of two cities", "year": 1859, "tags": ["novel", "history"], "more": {"pages": 489, "first line": "It was the best of times, it was the worst of times.", "in print": true}})"},
    {"json_schema", GrammarKind::json_schema,
     R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 40}, "age": {"type": "integer", "minimum": 0, "maximum": 150}, "email": {"type": "string", "pattern": "^[a-z.]+@[a-z.]+$"}, "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}}, "home": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}, "required": ["street", "city"]}}, "required": ["name", "age", "email", "tags", "home"], "additionalProperties": false})",
     R"({"name": "Ada Lovelace", "age": 36, "email": "ada@example.org", "tags": ["a", "c"], "home": {"street": "St James's Square 12", "city": "London"}})"},
    {"regex", GrammarKind::regex, R"(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z( [a-z]+){1,20})",
     "2024-05-17T12:30:59Z the quick brown fox jumps over the lazy dog"},
    {"ebnf", GrammarKind::ebnf,
     "root ::= term (\" \" [-+*/] \" \" term)*\nterm ::= [a-z]+ | [0-9]+ | \"(\" root \")\"",
     "(alpha + 12) * beta - (gamma / (3 + delta)) * 42"},
};

struct Times {
  std::vector<double> values;
  double at(double share) {
    std::sort(values.begin(), values.end());
    const double last = static_cast<double>(values.size() - 1);
    return values[static_cast<size_t>(share * last)];
  }
};

int run(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream json;
  json << file.rdbuf();
  const auto tokenizer = Tokenizer::from_json(json.str(), path);
  if (!tokenizer) {
    fmt::print(stderr, "{}\n", tokenizer.error().message);
    return 1;
  }
  double begin = microseconds();
  const auto compiler = GrammarCompiler::create(*tokenizer, {});
  if (!compiler) return 1;
  fmt::print("vocabulary {}: prepared once in {:.0f} ms\n", tokenizer->vocab_size(),
             (microseconds() - begin) / 1e3);
  fmt::print("{:<12} {:>8} {:>11} {:>7} {:>7} {:>7} {:>7} {:>10}\n", "grammar", "tokens",
             "compile us", "mean us", "p50", "p99", "max", "accept us");
  std::vector<uint32_t> words(static_cast<size_t>((tokenizer->vocab_size() + 31) / 32));
  for (const Case& test : kCases) {
    begin = microseconds();
    const auto grammar = compiler->compile({test.kind, test.grammar});
    const double compile_us = microseconds() - begin;
    const auto ids = tokenizer->encode(test.text, false);
    if (!grammar || !ids) {
      fmt::print(stderr, "{}: {}\n", test.name, grammar ? "text" : grammar.error().message);
      return 1;
    }
    Times masks, accepts;
    for (int round = 0; round < 20; ++round) {
      Grammar state = grammar->clone();
      for (const int32_t id : *ids) {
        begin = microseconds();
        if (!state.mask(words)) return 1;
        masks.values.push_back(microseconds() - begin);
        begin = microseconds();
        if (const Status status = state.accept(id); !status) {
          fmt::print(stderr, "{}: {}\n", test.name, status.error().message);
          return 1;
        }
        accepts.values.push_back(microseconds() - begin);
      }
    }
    double sum = 0;
    for (const double value : masks.values) sum += value;
    fmt::print("{:<12} {:>8} {:>11.0f} {:>7.1f} {:>7.1f} {:>7.1f} {:>7.1f} {:>10.1f}\n", test.name,
               ids->size(), compile_us, sum / static_cast<double>(masks.values.size()),
               masks.at(0.5), masks.at(0.99), masks.at(1), accepts.at(0.5));
  }
  return 0;
}

}  // namespace
}  // namespace tw

int main(int argc, char** argv) {
  if (argc == 2) return tw::run(argv[1]);
  fmt::print(stderr, "usage: {} TOKENIZER.JSON\n", argv[0]);
  return 2;
}
