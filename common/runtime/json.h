// SPDX-License-Identifier: Apache-2.0

// JSON for headers and manifests: a strict reader over nlohmann-json, and getters that return a
// status and never throw.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lodestar {

// Objects keep the order of their keys. Look values up with the getters below: the library's
// operator[] and at() abort or throw if the key is missing.
using Json = nlohmann::ordered_json;

// Objects are sorted by key.
using SortedJson = nlohmann::json;

struct JsonLimits {
  int64_t max_bytes = 100'000'000;
  int max_depth = 64;
};

// Parses `text`. The time is proportional to the text, except for sorting the keys of objects.
// Errors: InvalidArgument
// - with the byte offset, if the syntax or the UTF-8 is bad;
// - with the key, if an object has the key twice;
// - with the numbers, if a limit is exceeded.
absl::StatusOr<Json> ParseJson(absl::string_view text, const JsonLimits& limits = {});

// Returns the JSON text. `indent` is the number of spaces per level. A negative `indent` means one
// line. Bytes that are not UTF-8 become U+FFFD.
std::string FormatJson(const Json& json, int indent = -1);
std::string FormatSortedJson(const SortedJson& json);

// Return the value of `key`. The pointers are valid as long as `object`. Errors: InvalidArgument,
// if the key is missing, `object` is not an object, or the value is out of range or has another
// type. The error names the key, the wanted type and the other type.
absl::StatusOr<int64_t> GetInt64(const Json& object, absl::string_view key);
absl::StatusOr<uint64_t> GetUint64(const Json& object, absl::string_view key);
absl::StatusOr<double> GetDouble(const Json& object, absl::string_view key);
absl::StatusOr<bool> GetBool(const Json& object, absl::string_view key);
absl::StatusOr<std::string> GetString(const Json& object, absl::string_view key);
absl::StatusOr<const Json*> GetArray(const Json& object, absl::string_view key);
absl::StatusOr<const Json*> GetObject(const Json& object, absl::string_view key);

// Return `value` as an integer. `what` names the value in the error. Numbers with a point or an
// exponent are refused.
absl::StatusOr<int64_t> AsInt64(const Json& value, absl::string_view what);
absl::StatusOr<uint64_t> AsUint64(const Json& value, absl::string_view what);

}  // namespace lodestar
