// JSON for headers and manifests: a strict reader over nlohmann-json, and getters that return a
// status instead of throwing. No exception leaves these functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar {

// Objects keep the order of their keys. Look values up with the getters below: operator[] and at()
// of the library abort or throw on what is missing.
using Json = nlohmann::ordered_json;

// Objects are sorted by key.
using SortedJson = nlohmann::json;

struct JsonLimits {
  int64_t max_bytes = 100'000'000;
  int max_depth = 64;
};

// Takes time in proportion to the text, but for sorting the keys of an object. Errors:
// InvalidArgument with the byte offset for bad syntax or bad UTF-8, with the name for a key that an
// object has twice, with the numbers for a limit.
absl::StatusOr<Json> ParseJson(absl::string_view text, const JsonLimits& limits = {});

// `indent` spaces per level; below 0: one line. Bytes that are not UTF-8 become U+FFFD.
std::string FormatJson(const Json& json, int indent = -1);
std::string FormatSortedJson(const SortedJson& json);

// The value of `key`, of that type and in range. The pointers live as long as `object`.
// Errors: InvalidArgument naming the key, the type there and the type wanted; also if `object` is
// not an object.
absl::StatusOr<int64_t> GetInt64(const Json& object, absl::string_view key);
absl::StatusOr<uint64_t> GetUint64(const Json& object, absl::string_view key);
absl::StatusOr<double> GetDouble(const Json& object, absl::string_view key);
absl::StatusOr<bool> GetBool(const Json& object, absl::string_view key);
absl::StatusOr<std::string> GetString(const Json& object, absl::string_view key);
absl::StatusOr<const Json*> GetArray(const Json& object, absl::string_view key);
absl::StatusOr<const Json*> GetObject(const Json& object, absl::string_view key);

// The value itself. `what` names it in the error. Numbers with a point or an exponent are refused.
absl::StatusOr<int64_t> AsInt64(const Json& value, absl::string_view what);
absl::StatusOr<uint64_t> AsUint64(const Json& value, absl::string_view what);

}  // namespace lodestar
