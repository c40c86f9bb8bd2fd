# Writes files into a C++ source, so that the program carries them:
#   cmake -DOUTPUT=x.cc -DFOLDER=src/server/page -DFUNCTION=page_files -P embed_files.cmake
# It defines a function of server/embedded_files.h. The tag of a file is the begin of its SHA-256.
file(GLOB paths LIST_DIRECTORIES false ${FOLDER}/*)
list(SORT paths)
list(LENGTH paths count)

set(rows "")
foreach(path IN LISTS paths)
  get_filename_component(name ${path} NAME)
  file(SIZE ${path} size)
  file(SHA256 ${path} hash)
  string(SUBSTRING ${hash} 0 16 tag)
  file(READ ${path} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" bytes "${hex}")
  # Lines of 32 bytes: compilers dislike endless ones.
  string(REGEX REPLACE "((\\\\x[0-9a-f][0-9a-f]){32})" "\\1\"\n    \"" bytes "${bytes}")
  string(APPEND rows "  {\"${name}\", \"\\\"${tag}\\\"\", {\n    \"${bytes}\", ${size}}},\n")
endforeach()

file(WRITE ${OUTPUT}.new "// Made by cmake/embed_files.cmake.
#include \"server/embedded_files.h\"

namespace tw {
namespace {

constexpr EmbeddedFile kFiles[] = {
${rows}};

}  // namespace

std::span<const EmbeddedFile> ${FUNCTION}() {
  return kFiles;
}

}  // namespace tw
")
file(RENAME ${OUTPUT}.new ${OUTPUT})
