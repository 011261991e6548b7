// SPDX-License-Identifier: Apache-2.0

#include "worker/model/tokenizer_files.h"

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "common/runtime/json.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"
#include "common/storage/git_lfs_pointer.h"

namespace lodestar::model {
namespace {

constexpr int64_t kMaxFileBytes = 64 << 20;
constexpr char kTokenizerFile[] = "tokenizer.json";
constexpr char kVocabularyFile[] = "vocab.json";
constexpr char kMergesFile[] = "merges.txt";

absl::StatusOr<Json> ParseObject(absl::string_view text) {
  ASSIGN_OR_RETURN(Json json, ParseJson(text, {.max_bytes = kMaxFileBytes}));
  if (!json.is_object()) return absl::InvalidArgumentError("is not a JSON object");
  return json;
}

// Returns the value of `key`, or null if the object does not have the key.
const Json& Get(const Json& object, const std::string& key) {
  static const Json none;
  const auto entry = object.is_object() ? object.find(key) : object.end();
  return entry == object.end() ? none : *entry;
}

absl::Status Unknown(absl::string_view field, const Json& seen, absl::string_view known) {
  return absl::InvalidArgumentError(absl::StrCat("\"", PeerText(field), "\" is ",
                                                 PeerText(FormatJson(seen)),
                                                 "; Lodestar can use only ", known));
}

// Checks that the value of `key` is one of `values`, or that there is no value.
absl::Status CheckOneOf(absl::string_view where, const Json& object, const std::string& key,
                        const std::vector<Json>& values) {
  const Json& seen = Get(object, key);
  if (seen.is_null()) return absl::OkStatus();
  std::vector<std::string> known = {"null"};
  for (const Json& value : values) {
    if (seen == value) return absl::OkStatus();
    known.push_back(FormatJson(value));
  }
  return Unknown(absl::StrCat(where, key), seen, absl::StrJoin(known, " or "));
}

absl::StatusOr<bool> GetFlag(const Json& object, const std::string& key, bool otherwise) {
  const Json& seen = Get(object, key);
  if (seen.is_null()) return otherwise;
  if (!seen.is_boolean()) return Unknown(key, seen, "true or false");
  return seen.get<bool>();
}

absl::StatusOr<int32_t> TokenOf(absl::string_view text, const Json& json) {
  if (json.is_number_integer() && json >= 0 && json <= std::numeric_limits<int32_t>::max()) {
    return json.get<int32_t>();
  }
  return Unknown(text, json, "the number of a token");
}

absl::Status ReadVocabulary(const Json& vocabulary, BytePairTokenizer::Config& config) {
  if (!vocabulary.is_object()) return Unknown("vocab", vocabulary, "an object of tokens");
  for (const auto& [text, number] : vocabulary.items()) {
    ASSIGN_OR_RETURN(const int32_t token, TokenOf(text, number));
    config.tokens.emplace_back(text, token);
  }
  return absl::OkStatus();
}

absl::Status AddMerge(const std::vector<std::string>& parts, BytePairTokenizer::Config& config) {
  if (parts.size() != 2 || parts[0].empty() || parts[1].empty()) {
    return absl::InvalidArgumentError(absl::StrCat("merge ", config.merges.size() + 1, " is \"",
                                                   PeerText(absl::StrJoin(parts, " ")),
                                                   "\", but must be two tokens"));
  }
  config.merges.emplace_back(parts[0], parts[1]);
  return absl::OkStatus();
}

// Reads merges of the form "a b" or ["a", "b"].
absl::Status ReadMerges(const Json& merges, BytePairTokenizer::Config& config) {
  if (!merges.is_array()) return Unknown("merges", merges, "an array");
  for (const Json& merge : merges) {
    std::vector<std::string> parts;
    if (merge.is_string()) {
      parts = absl::StrSplit(merge.get_ref<const std::string&>(), ' ');
    } else if (merge.is_array()) {
      for (const Json& part : merge) {
        if (part.is_string()) parts.push_back(part.get<std::string>());
      }
    }
    RETURN_IF_ERROR(AddMerge(parts, config));
  }
  return absl::OkStatus();
}

absl::Status ReadModel(const Json& model, BytePairTokenizer::Config& config) {
  if (Get(model, "type") != "BPE") return Unknown("model.type", Get(model, "type"), "\"BPE\"");
  RETURN_IF_ERROR(CheckOneOf("model.", model, "dropout", {0.0}));
  RETURN_IF_ERROR(CheckOneOf("model.", model, "continuing_subword_prefix", {""}));
  RETURN_IF_ERROR(CheckOneOf("model.", model, "end_of_word_suffix", {""}));
  RETURN_IF_ERROR(CheckOneOf("model.", model, "byte_fallback", {false}));
  RETURN_IF_ERROR(CheckOneOf("model.", model, "ignore_merges", {false}));
  RETURN_IF_ERROR(ReadVocabulary(Get(model, "vocab"), config));
  return ReadMerges(Get(model, "merges"), config);
}

absl::Status ReadAddedToken(const Json& added, BytePairTokenizer::Config& config) {
  const Json& content = Get(added, "content");
  if (!content.is_string()) return Unknown("added_tokens", added, "a token with its \"content\"");
  BytePairTokenizer::AddedToken token;
  token.text = content.get<std::string>();
  ASSIGN_OR_RETURN(token.token, TokenOf(token.text, Get(added, "id")));
  const std::string where = absl::StrCat("added_tokens: ", PeerText(token.text), ": ");
  for (const char* key : {"single_word", "lstrip", "rstrip"}) {
    RETURN_IF_ERROR(CheckOneOf(where, added, key, {false}));
  }
  ASSIGN_OR_RETURN(const bool is_found_then, GetFlag(added, "normalized", false));
  token.is_found_first = !is_found_then;
  config.added.push_back(std::move(token));
  return absl::OkStatus();
}

// Checks that the post-processor adds no tokens: its type must be ByteLevel, or it must be a
// template that has only the text.
absl::Status CheckPostProcessor(const Json& seen) {
  if (seen.is_null() || Get(seen, "type") == "ByteLevel") return absl::OkStatus();
  const Json& single = Get(seen, "single");
  const bool is_text_alone = Get(seen, "type") == "TemplateProcessing" && single.is_array() &&
                             single.size() == 1 && single[0].contains("Sequence");
  if (is_text_alone) return absl::OkStatus();
  return Unknown("post_processor", seen, "one that adds no tokens");
}

absl::Status CheckByteLevel(const Json& file, const std::string& part) {
  const Json& seen = Get(file, part);
  if (Get(seen, "type") == "ByteLevel") return absl::OkStatus();
  return Unknown(part, seen, "one of type \"ByteLevel\"");
}

absl::StatusOr<std::string> ReadTextFile(storage::FileSystem& file_system,
                                         const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, file_system.ReadWholeFile(path, kMaxFileBytes));
  RETURN_IF_ERROR(storage::CheckNotGitLfsPointer(
      path, absl::MakeSpan(reinterpret_cast<const uint8_t*>(text.data()), text.size())));
  return text;
}

absl::StatusOr<BytePairTokenizer::Config> ReadConfig(storage::FileSystem& file_system,
                                                     const std::string& path) {
  const std::string prefix = absl::StrCat(path, "/");
  if (!file_system.IsDirectory(path) || file_system.Exists(prefix + kTokenizerFile)) {
    const std::string file = file_system.IsDirectory(path) ? prefix + kTokenizerFile : path;
    ASSIGN_OR_RETURN(const std::string text, ReadTextFile(file_system, file));
    return ParseTokenizerJson(text);
  }
  if (!HasTokenizer(file_system, path)) {
    return absl::NotFoundError(absl::StrCat("there is neither ", kTokenizerFile, " nor ",
                                            kVocabularyFile, " and ", kMergesFile));
  }
  ASSIGN_OR_RETURN(const std::string vocabulary,
                   ReadTextFile(file_system, prefix + kVocabularyFile));
  ASSIGN_OR_RETURN(const std::string merges, ReadTextFile(file_system, prefix + kMergesFile));
  return ParseVocabulary(vocabulary, merges);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Open(storage::FileSystem& file_system,
                                                const std::string& path) {
  ASSIGN_OR_RETURN(const BytePairTokenizer::Config config, ReadConfig(file_system, path));
  return BytePairTokenizer::Create(config);
}

}  // namespace

absl::StatusOr<BytePairTokenizer::Config> ParseTokenizerJson(absl::string_view text) {
  ASSIGN_OR_RETURN(const Json file, ParseObject(text));
  RETURN_IF_ERROR(CheckOneOf("", file, "normalizer", {}));
  RETURN_IF_ERROR(CheckByteLevel(file, "pre_tokenizer"));
  RETURN_IF_ERROR(CheckPostProcessor(Get(file, "post_processor")));
  RETURN_IF_ERROR(CheckByteLevel(file, "decoder"));
  BytePairTokenizer::Config config;
  const Json& splitter = Get(file, "pre_tokenizer");
  ASSIGN_OR_RETURN(config.adds_space, GetFlag(splitter, "add_prefix_space", true));
  ASSIGN_OR_RETURN(config.splits_words, GetFlag(splitter, "use_regex", true));
  RETURN_IF_ERROR(ReadModel(Get(file, "model"), config));
  const Json& added = Get(file, "added_tokens");
  if (!added.is_null() && !added.is_array()) return Unknown("added_tokens", added, "an array");
  for (const Json& token : added) RETURN_IF_ERROR(ReadAddedToken(token, config));
  return config;
}

absl::StatusOr<BytePairTokenizer::Config> ParseVocabulary(absl::string_view vocabulary,
                                                          absl::string_view merges) {
  BytePairTokenizer::Config config;
  ASSIGN_OR_RETURN(const Json tokens, ParseObject(vocabulary));
  RETURN_IF_ERROR(ReadVocabulary(tokens, config));
  for (absl::string_view line : absl::StrSplit(merges, '\n')) {
    absl::ConsumeSuffix(&line, "\r");
    if (line.empty() || absl::StartsWith(line, "#version")) continue;
    RETURN_IF_ERROR(AddMerge(absl::StrSplit(line, ' '), config));
  }
  // The Python library transformers adds this token, even if the file does not list it.
  constexpr char kEndOfText[] = "<|endoftext|>";
  for (const auto& [text, token] : config.tokens) {
    if (text == kEndOfText) config.added.push_back({.text = text, .token = token});
  }
  return config;
}

bool HasTokenizer(storage::FileSystem& file_system, const std::string& folder) {
  const auto has = [&](const char* name) {
    return file_system.Exists(absl::StrCat(folder, "/", name));
  };
  return has(kTokenizerFile) || (has(kVocabularyFile) && has(kMergesFile));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(storage::FileSystem& file_system,
                                                         const std::string& path) {
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Open(file_system, path);
  if (tokenizer.ok()) return tokenizer;
  return absl::Status(tokenizer.status().code(),
                      absl::StrCat("tokenizer ", path, ": ", tokenizer.status().message()));
}

}  // namespace lodestar::model
