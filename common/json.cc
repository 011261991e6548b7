#include "common/json.h"

#include <limits>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
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

// Looks at the brackets before the parser does, which would build what is inside them first.
absl::Status CheckDepth(absl::string_view text, int max_depth) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > max_depth) {
        return absl::InvalidArgumentError(absl::StrCat("JSON is nested deeper than the ", max_depth,
                                                       " levels allowed at byte ", i));
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return absl::OkStatus();
}

// Follows the parser and remembers the first key that an object has twice.
class UniqueKeys {
 public:
  void Watch(Json::parse_event_t event, const Json& parsed) {
    if (event == Json::parse_event_t::object_start) {
      open_objects_.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      open_objects_.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const std::string& key = parsed.get_ref<const std::string&>();
      if (!open_objects_.back().insert(key).second && status_.ok()) {
        status_ = absl::InvalidArgumentError(
            absl::StrCat("JSON has ", Quote(key), " twice in one object"));
      }
    }
  }
  const absl::Status& status() const { return status_; }

 private:
  std::vector<std::set<std::string>> open_objects_;
  absl::Status status_;
};

// The parser's message quotes what it has read, which need not be text; errors must be, to travel.
std::string TextOf(const Json::exception& error) {
  std::string text;
  for (const char c : absl::string_view(error.what())) {
    if (absl::ascii_isprint(static_cast<unsigned char>(c))) {
      text.push_back(c);
    } else {
      absl::StrAppend(&text, absl::CHexEscape(absl::string_view(&c, 1)));
    }
  }
  return text;
}

}  // namespace

absl::StatusOr<Json> ParseJson(absl::string_view text, const JsonLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("JSON of ", text.size(), " bytes, allowed are ", limits.max_bytes));
  }
  RETURN_IF_ERROR(CheckDepth(text, limits.max_depth));
  UniqueKeys keys;
  try {
    Json json = Json::parse(text.begin(), text.end(),
                            [&](int, Json::parse_event_t event, const Json& parsed) {
                              keys.Watch(event, parsed);
                              return true;
                            });
    RETURN_IF_ERROR(keys.status());
    return json;
  } catch (const Json::parse_error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("JSON is malformed at byte ", error.byte, ": ", TextOf(error)));
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("JSON is malformed: ", TextOf(error)));
  }
}

std::string FormatJson(const Json& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
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
        absl::StrCat(what, " is ", value.get<uint64_t>(), ", allowed are up to ", kMaximum));
  }
  return value.get<int64_t>();
}

absl::StatusOr<uint64_t> AsUint64(const Json& value, absl::string_view what) {
  if (!value.is_number_unsigned()) return WrongType(what, value, "integer without a sign");
  return value.get<uint64_t>();
}

}  // namespace lodestar
