// Files inside the program: the web page (src/server/page/) and the parts of the OpenAPI document
// (src/server/openapi/). cmake/embed_files.cmake writes the definitions.
#pragma once

#include <span>
#include <string_view>

namespace tw {

struct EmbeddedFile {
  std::string_view name;  // "app.js"
  std::string_view etag;  // of its content, with the quotes that HTTP wants
  std::string_view bytes;
};

std::span<const EmbeddedFile> page_files();
std::span<const EmbeddedFile> openapi_files();

}  // namespace tw
