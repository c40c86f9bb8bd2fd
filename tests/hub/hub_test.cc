// Names, settings, choice of files, cache and digests; tests/apps/hub_test.py tests the protocol.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "hub/blob_download.h"
#include "hub/file_selection.h"
#include "hub/hub_cache.h"
#include "hub/hub_settings.h"
#include "hub/model_id.h"
#include "hub/sha256.h"

namespace tw {
namespace {

namespace fs = std::filesystem;

std::string digest_in_pieces(std::string_view text, size_t piece) {
  Sha256 sha;
  for (size_t begin = 0; begin < text.size(); begin += piece) {
    sha.update(std::as_bytes(std::span(text.substr(begin, piece))));
  }
  return sha.hex_digest();
}

TEST(Sha256, ExamplesOfTheStandard) {
  EXPECT_EQ(digest_in_pieces("", 1),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest_in_pieces("abc", 2),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const std::string two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  const std::string million(1'000'000, 'a');
  for (const size_t piece : {1, 7, 55, 56, 63, 64, 65, 1000}) {
    EXPECT_EQ(digest_in_pieces(two_blocks, piece),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  }
  for (const size_t piece : {size_t{999}, million.size()}) {
    EXPECT_EQ(digest_in_pieces(million, piece),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
}

TEST(ModelId, WhatIsOneAndWhatIsAPath) {
  const auto id = parse_model_id("Qwen/Qwen3-0.6B");
  ASSERT_TRUE(id);
  EXPECT_EQ(id->repository, "Qwen/Qwen3-0.6B");
  EXPECT_EQ(id->tag, "");
  EXPECT_EQ(parse_model_id("a/b-GGUF:Q4_K_M")->tag, "Q4_K_M");
  EXPECT_EQ(parse_model_id("a/b-GGUF:Q4_K_M")->repository, "a/b-GGUF");
  for (const char* path : {"", "model", "/models/m", "./a", "../a", "a/../b", "~/m", "a/b/c", "a/",
                           "/a", "models/m.gguf", "a/b:", "a/b:../x", "a b/c", "a/b?c", "a/b#c"}) {
    EXPECT_FALSE(parse_model_id(path)) << path;
  }
}

TEST(ModelId, NamesOfFilesStayInTheirFolder) {
  for (const char* path : {"config.json", "1_Pooling/config.json", "a..b"}) {
    EXPECT_TRUE(is_safe_relative_path(path)) << path;
  }
  for (const char* path : {"", "/etc/passwd", "../x", "a/../x", "a//b", "./a", "a\\b", "a\nb"}) {
    EXPECT_FALSE(is_safe_relative_path(path)) << path;
  }
}

HubSettings settings_of(std::map<std::string, std::string> variables) {
  return HubSettings::from([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(HubSettings, FollowTheVariablesOfHuggingFaceHub) {
  HubSettings settings = settings_of({{"HOME", "/home/me"}});
  EXPECT_EQ(settings.endpoint, "https://huggingface.co");
  EXPECT_EQ(settings.cache, "/home/me/.cache/huggingface/hub");
  EXPECT_EQ(settings.token, "");
  EXPECT_FALSE(settings.offline);
  settings =
      settings_of({{"HOME", "/home/me"}, {"XDG_CACHE_HOME", "/var/c"}, {"HF_HUB_OFFLINE", "0"}});
  EXPECT_EQ(settings.cache, "/var/c/huggingface/hub");
  EXPECT_FALSE(settings.offline);
  settings = settings_of({{"HOME", "/home/me"},
                          {"HF_HOME", "~/hf"},
                          {"HF_HUB_OFFLINE", "TRUE"},
                          {"HF_ENDPOINT", "http://mirror:8/"},
                          {"HF_TOKEN", " hf_x\n"}});
  EXPECT_EQ(settings.cache, "/home/me/hf/hub");
  EXPECT_EQ(settings.endpoint, "http://mirror:8");
  EXPECT_EQ(settings.token, "hf_x");
  EXPECT_TRUE(settings.offline);
  EXPECT_EQ(settings_of({{"HF_HUB_CACHE", "/c"}, {"HF_HOME", "/h"}}).cache, "/c");
  EXPECT_EQ(settings_of({{"SSL_CERT_FILE", "/s"}}).certificates, "/s");
  EXPECT_EQ(settings_of({{"SSL_CERT_FILE", "/s"}, {"REQUESTS_CA_BUNDLE", "/r"}}).certificates,
            "/r");
}

TEST(HubSettings, TheTokenMayLieInAFile) {
  const fs::path home = fs::path(testing::TempDir()) / "tw_hf_home";
  fs::create_directories(home);
  std::ofstream(home / "token") << "hf_file\n";
  EXPECT_EQ(settings_of({{"HF_HOME", home.string()}}).token, "hf_file");
  EXPECT_EQ(settings_of({{"HF_HOME", home.string()}, {"HF_TOKEN", "hf_own"}}).token, "hf_own");
  fs::remove_all(home);
}

using Names = std::vector<std::string>;

TEST(FileSelection, FoldersOfSafetensors) {
  const ModelId id{"a/b", ""};
  auto selection = select_files(
      id, {".gitattributes", "README.md", "config.json", "tokenizer.json", "model.safetensors",
           "consolidated.safetensors", "onnx/model.safetensors", "pytorch_model.bin", "b.gguf"});
  ASSERT_TRUE(selection) << selection.error().message;
  EXPECT_EQ(selection->files, Names({"config.json", "tokenizer.json", "model.safetensors"}));
  EXPECT_EQ(selection->entry, "");
  selection =
      select_files(id, {"1_Pooling/config.json", "config.json", "model-00001-of-00002.safetensors",
                        "model-00002-of-00002.safetensors", "model.safetensors",
                        "model.safetensors.index.json"});
  EXPECT_EQ(selection->files,
            Names({"1_Pooling/config.json", "config.json", "model.safetensors.index.json",
                   "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}));
}

TEST(FileSelection, OneGgufFileOfSeveral) {
  const Names files = {"README.md",
                       "m-Q4_K_M.gguf",
                       "m.Q8_0.gguf",
                       "mmproj-m-F16.gguf",
                       "BF16/m-BF16-00001-of-00002.gguf",
                       "BF16/m-BF16-00002-of-00002.gguf"};
  auto selection = select_files({"a/b", "q4_k_m"}, files);
  ASSERT_TRUE(selection) << selection.error().message;
  EXPECT_EQ(selection->entry, "m-Q4_K_M.gguf");
  EXPECT_EQ(selection->files, Names({"m-Q4_K_M.gguf"}));
  EXPECT_EQ(select_files({"a/b", "Q8_0"}, files)->entry, "m.Q8_0.gguf");
  selection = select_files({"a/b", "BF16"}, files);
  EXPECT_EQ(selection->entry, "BF16/m-BF16-00001-of-00002.gguf");
  EXPECT_EQ(selection->files.size(), 2u);
  EXPECT_EQ(select_files({"a/b", ""}, {"only.gguf", "config.json"})->entry, "only.gguf");
}

TEST(FileSelection, ErrorsSayWhatThereIs) {
  const auto message = [](const ModelId& id, const Names& files) {
    const auto selection = select_files(id, files);
    return selection ? std::string() : selection.error().message;
  };
  EXPECT_NE(message({"a/b", ""}, {"m-Q4_0.gguf", "m-Q8_0.gguf"}).find("Q4_0, Q8_0"),
            std::string::npos);
  EXPECT_NE(message({"a/b", "Q2_K"}, {"m-Q4_0.gguf"}).find("it has Q4_0"), std::string::npos);
  EXPECT_NE(message({"a/b", "Q2_K"}, {"model.safetensors"}).find("leave :Q2_K away"),
            std::string::npos);
  EXPECT_NE(message({"a/b", ""}, {"pytorch_model.bin"}).find("neither model.safetensors"),
            std::string::npos);
}

TEST(HubCache, SnapshotsLinkToBlobs) {
  const fs::path root = fs::path(testing::TempDir()) / "tw_hub_cache";
  fs::remove_all(root);
  const HubCache cache(root, "org/name");
  EXPECT_EQ(cache.folder(), root / "models--org--name");
  EXPECT_FALSE(cache.commit_of("main"));
  fs::create_directories(cache.folder() / "blobs");
  std::ofstream(cache.blob("e1")) << "content";
  ASSERT_TRUE(cache.link("c1", "1_Pooling/config.json", "e1"));
  ASSERT_TRUE(cache.link("c1", "gone.json", "e2"));
  ASSERT_TRUE(cache.remember("refs/pr/1", "c1"));
  EXPECT_EQ(cache.commit_of("refs/pr/1"), "c1");
  EXPECT_EQ(cache.commit_of("c1"), "c1") << "a commit is its own revision";
  EXPECT_FALSE(cache.commit_of("../c1"));
  EXPECT_TRUE(cache.has("c1", "1_Pooling/config.json"));
  EXPECT_FALSE(cache.has("c1", "gone.json")) << "its blob is missing";
  EXPECT_EQ(cache.files("c1"), Names({"1_Pooling/config.json"}));
  EXPECT_EQ(fs::read_symlink(cache.snapshot("c1") / "1_Pooling/config.json"), "../../../blobs/e1");
  EXPECT_TRUE(HubLock::acquire(cache.lock_file("e1")));
  fs::remove_all(root);
}

TEST(HubAnswers, SayWhatTheUserCanDo) {
  const auto message = [](int status, const char* code, bool has_token) {
    HttpAnswer answer{.status = status, .headers = {}, .body = {}, .url = {}};
    if (code) answer.headers["x-error-code"] = code;
    const Status checked = check_answer(answer, "a/b", has_token);
    return checked ? std::string() : checked.error().message;
  };
  EXPECT_EQ(message(200, nullptr, false), "");
  EXPECT_NE(message(401, "GatedRepo", false).find("HF_TOKEN"), std::string::npos);
  EXPECT_NE(message(403, nullptr, true).find("terms"), std::string::npos);
  EXPECT_NE(message(401, nullptr, false).find("set HF_TOKEN"), std::string::npos);
  EXPECT_NE(message(401, nullptr, true).find("token may not"), std::string::npos);
  EXPECT_NE(message(404, "RevisionNotFound", true).find("--revision"), std::string::npos);
  EXPECT_NE(message(503, nullptr, true).find("503"), std::string::npos);
}

TEST(EscapePath, LeavesSlashes) {
  EXPECT_EQ(escape_path("a b/c+d_é.json"), "a%20b/c%2Bd_%C3%A9.json");
}

}  // namespace
}  // namespace tw
