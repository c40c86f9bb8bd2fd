// The web page's files (src/server/page/), inside the program; cmake/embed_files.cmake writes the
// definition.
#pragma once

#include <span>
#include <string_view>

namespace tw {

struct PageFile {
  std::string_view name;  // "app.js"
  std::string_view etag;  // of its content, with the quotes that HTTP wants
  std::string_view bytes;
};

std::span<const PageFile> page_files();

}  // namespace tw
