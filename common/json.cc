#include "common/json.h"

#include <limits>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

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

std::string Quote(absl::string_view key) { return absl::StrCat("key '", key, "'"); }

// Watches the parser: remembers the first breach of what JSON itself allows and we do not.
class Strictness {
 public:
  explicit Strictness(int max_depth) : max_depth_(max_depth) {}

  // Returns whether the parser shall keep the value.
  bool Watch(int depth, Json::parse_event_t event, const Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start:
        keys_.emplace_back();
        return CheckDepth(depth);
      case Json::parse_event_t::array_start:
        return CheckDepth(depth);
      case Json::parse_event_t::object_end:
        keys_.pop_back();
        return true;
      case Json::parse_event_t::key:
        if (!keys_.back().insert(parsed.get_ref<const std::string&>()).second && status_.ok()) {
          status_ = absl::InvalidArgumentError(absl::StrCat(
              "JSON has ", Quote(parsed.get_ref<const std::string&>()), " twice in one object"));
        }
        return true;
      default:
        return true;
    }
  }
  const absl::Status& status() const { return status_; }

 private:
  bool CheckDepth(int depth) {
    if (depth < max_depth_) return true;
    if (status_.ok()) {
      status_ = absl::InvalidArgumentError(
          absl::StrCat("JSON is nested deeper than the ", max_depth_, " levels allowed"));
    }
    return true;
  }

  const int max_depth_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
  absl::Status status_;
};

}  // namespace

absl::StatusOr<Json> ParseJson(absl::string_view text, const JsonLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("JSON of ", text.size(), " bytes, allowed are ", limits.max_bytes));
  }
  Strictness strictness(limits.max_depth);
  try {
    Json json = Json::parse(text.begin(), text.end(),
                            [&](int depth, Json::parse_event_t event, Json& parsed) {
                              return strictness.Watch(depth, event, parsed);
                            });
    RETURN_IF_ERROR(strictness.status());
    return json;
  } catch (const Json::parse_error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("JSON is malformed at byte ", error.byte, ": ", error.what()));
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("JSON is malformed: ", error.what()));
  }
}

std::string FormatJson(const Json& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

absl::StatusOr<int64_t> GetInt64(const Json& object, absl::string_view key) {
  ASSIGN_OR_RETURN(const Json* const value, Find(object, key));
  return AsInt64(*value, Quote(key));
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
        absl::StrCat(what, " is ", value.get<uint64_t>(), ", allowed are up to ", kMaximum));
  }
  return value.get<int64_t>();
}

}  // namespace lodestar
