#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>

#include "core/mapped_file.h"
#include "core/text_file.h"

namespace tw {
namespace {

namespace fs = std::filesystem;

TEST(MappedFile, ReadsAndSurvivesMoves) {
  const fs::path path = fs::temp_directory_path() / ("tw_map_" + std::to_string(getpid()));
  std::ofstream(path) << "hello";
  auto file = MappedFile::open(path);
  ASSERT_TRUE(file);
  MappedFile moved = std::move(*file);
  EXPECT_EQ(std::memcmp(moved.bytes().data(), "hello", 5), 0);
  EXPECT_EQ(moved.bytes().size(), 5u);
  moved.release(moved.bytes());
  EXPECT_EQ(std::memcmp(moved.bytes().data(), "hello", 5), 0);
  fs::remove(path);
}

TEST(MappedFile, EmptyFileIsAnEmptySpan) {
  const fs::path path = fs::temp_directory_path() / ("tw_empty_" + std::to_string(getpid()));
  std::ofstream(path).close();
  auto file = MappedFile::open(path);
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->bytes().empty());
  fs::remove(path);
}

TEST(MappedFile, MissingFileAndFolderAreErrorsWithTheirName) {
  auto missing = MappedFile::open("/nonexistent/model.gguf");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_NE(missing.error().message.find("/nonexistent/model.gguf"), std::string::npos);
  EXPECT_FALSE(MappedFile::open("/tmp"));
}

TEST(TextFile, GivesTheWholeFile) {
  const fs::path path = fs::temp_directory_path() / ("tw_text_" + std::to_string(getpid()));
  const std::string text("two\r\nlines, and a zero: \0.", 27);
  std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(read_text_file(path), text);
  std::ofstream(path, std::ios::binary | std::ios::trunc).close();
  EXPECT_EQ(read_text_file(path), "");
  fs::remove(path);
}

TEST(TextFile, MissingFileAndFolderAreNoText) {
  EXPECT_FALSE(read_text_file("/nonexistent/template.jinja"));
  EXPECT_FALSE(read_text_file("/tmp"));
}

}  // namespace
}  // namespace tw
