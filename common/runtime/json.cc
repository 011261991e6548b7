// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/json.h"

#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"

namespace lodestar {
namespace {

absl::Status WrongType(absl::string_view what, const Json& value, absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is of type ", value.type_name(), ", expected ", wanted));
}

absl::StatusOr<const Json*> Find(const Json& object, absl::string_view key) {
  if (!object.is_object()) return WrongType("value", object, absl::StrCat("object with ", key));
  const auto entry = object.find(std::string(key));
  if (entry == object.end()) {
    return absl::InvalidArgumentError(absl::StrCat("key '", key, "' is missing"));
  }
  return &*entry;
}

std::string Quote(absl::string_view key) { return absl::StrCat("key '", PeerText(key), "'"); }

absl::Status Malformed(const Json::exception& error, absl::string_view where) {
  // The parser's message quotes its input, which may have any bytes and any length.
  return absl::InvalidArgumentError(
      absl::StrCat("JSON is malformed", where, ": ", PeerText(error.what())));
}

// Builds the value while the parser reads. To insert a key, a Json object compares it with all its
// keys, so the time would grow with the square of their number. This class keeps the keys in a set,
// and appends without comparing.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(int max_depth) : max_depth_(max_depth) {}

  Json& value() { return value_; }
  const absl::Status& status() const { return status_; }

  bool null() override { return Add(nullptr) != nullptr; }
  bool boolean(bool value) override { return Add(value) != nullptr; }
  bool number_integer(int64_t value) override { return Add(value) != nullptr; }
  bool number_unsigned(uint64_t value) override { return Add(value) != nullptr; }
  bool number_float(double value, const std::string& /*text*/) override {
    return Add(value) != nullptr;
  }
  bool string(std::string& value) override { return Add(std::move(value)) != nullptr; }
  // JSON text has no binary values.
  bool binary(Json::binary_t& /*value*/) override { return false; }
  bool start_object(size_t /*num_elements*/) override { return Open(Json::object()); }
  bool end_object() override { return Close(); }
  bool start_array(size_t /*num_elements*/) override { return Open(Json::array()); }
  bool end_array() override { return Close(); }
  bool key(std::string& key) override {
    if (open_.back().keys.insert(key).second) {
      key_ = std::move(key);
      return true;
    }
    return Fail(absl::StrCat("JSON has the key ", Quote(key), " twice in one object"));
  }
  bool parse_error(size_t position, const std::string& /*last_token*/,
                   const Json::exception& error) override {
    status_ = Malformed(error, absl::StrCat(" at byte ", position));
    return false;
  }

 private:
  struct OpenContainer {
    Json* container = nullptr;
    std::set<std::string> keys;  // if `container` is an object: its keys so far
  };

  bool Fail(const std::string& text) {
    status_ = absl::InvalidArgumentError(text);
    return false;
  }

  // Adds `value` to the innermost open container and returns its address. Only that container
  // grows, so the addresses of open containers stay valid.
  Json* Add(Json value) {
    if (open_.empty()) {
      value_ = std::move(value);
      return &value_;
    }
    Json& container = *open_.back().container;
    if (container.is_array()) {
      auto& elements = container.get_ref<Json::array_t&>();
      elements.push_back(std::move(value));
      return &elements.back();
    }
    std::vector<Json::object_t::value_type>& entries = container.get_ref<Json::object_t&>();
    entries.emplace_back(std::move(key_), std::move(value));
    return &entries.back().second;
  }

  bool Open(Json container) {
    if (static_cast<int>(open_.size()) == max_depth_) {
      return Fail(absl::StrCat("JSON is nested too deeply; allowed are ", max_depth_, " levels"));
    }
    open_.push_back({.container = Add(std::move(container)), .keys = {}});
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  const int max_depth_;
  Json value_;
  std::vector<OpenContainer> open_;
  std::string key_;  // key of the value that comes next
  absl::Status status_;
};

}  // namespace

absl::StatusOr<Json> ParseJson(absl::string_view text, const JsonLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("the JSON text has ", text.size(),
                                                   " bytes, but at most ", limits.max_bytes,
                                                   " are allowed"));
  }
  Builder builder(limits.max_depth);
  try {
    Json::sax_parse(text.begin(), text.end(), &builder);
  } catch (const Json::exception& error) {
    return Malformed(error, "");
  }
  RETURN_IF_ERROR(builder.status());
  return std::move(builder.value());
}

std::string FormatJson(const Json& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string FormatSortedJson(const SortedJson& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/false, SortedJson::error_handler_t::replace);
}

absl::StatusOr<int64_t> GetInt64(const Json& object, absl::string_view key) {
  ASSIGN_OR_RETURN(const Json* const value, Find(object, key));
  return AsInt64(*value, Quote(key));
}

absl::StatusOr<uint64_t> GetUint64(const Json& object, absl::string_view key) {
  ASSIGN_OR_RETURN(const Json* const value, Find(object, key));
  return AsUint64(*value, Quote(key));
}

absl::StatusOr<double> GetDouble(const Json& object, absl::string_view key) {
  ASSIGN_OR_RETURN(const Json* const value, Find(object, key));
  if (!value->is_number()) return WrongType(Quote(key), *value, "number");
  return value->get<double>();
}

absl::StatusOr<bool> GetBool(const Json& object, absl::string_view key) {
  ASSIGN_OR_RETURN(const Json* const value, Find(object, key));
  if (!value->is_boolean()) return WrongType(Quote(key), *value, "boolean");
  return value->get<bool>();
}

absl::StatusOr<std::string> GetString(const Json& object, absl::string_view key) {
  ASSIGN_OR_RETURN(const Json* const value, Find(object, key));
  if (!value->is_string()) return WrongType(Quote(key), *value, "string");
  return value->get<std::string>();
}

absl::StatusOr<const Json*> GetArray(const Json& object, absl::string_view key) {
  ASSIGN_OR_RETURN(const Json* const value, Find(object, key));
  if (!value->is_array()) return WrongType(Quote(key), *value, "array");
  return value;
}

absl::StatusOr<const Json*> GetObject(const Json& object, absl::string_view key) {
  ASSIGN_OR_RETURN(const Json* const value, Find(object, key));
  if (!value->is_object()) return WrongType(Quote(key), *value, "object");
  return value;
}

absl::StatusOr<int64_t> AsInt64(const Json& value, absl::string_view what) {
  if (!value.is_number_integer()) return WrongType(what, value, "integer");
  constexpr uint64_t kMaximum = std::numeric_limits<int64_t>::max();
  if (value.is_number_unsigned() && value.get<uint64_t>() > kMaximum) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is ", value.get<uint64_t>(), "; allowed are at most ", kMaximum));
  }
  return value.get<int64_t>();
}

absl::StatusOr<uint64_t> AsUint64(const Json& value, absl::string_view what) {
  if (!value.is_number_unsigned()) return WrongType(what, value, "non-negative integer");
  return value.get<uint64_t>();
}

}  // namespace lodestar
