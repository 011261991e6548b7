// SPDX-License-Identifier: Apache-2.0

// Stores records as JSON and reads them back. The fields of a record are described once:
//
//   template <typename Archive>
//   void Describe(Archive& archive, RosterMember& member) {
//     archive("worker", member.worker);
//     archive.Optional("num_samples", member.num_samples);
//   }
//
// Describe() must be in the namespace of the record's type. A program must have only one Describe()
// per type. Writers call Describe() also, so it may change the record only `if constexpr
// (Archive::kReads)`. A Describe() that calls Describe(archive, part) puts the fields of `part`
// beside its own fields. JsonWriter and JsonReader offer:
//
//   archive(name, field)           The key must be there.
//   Optional(name, field)          The key is always written. If it is absent, as in files of
//                                  earlier releases, the field stays as it is.
//   Sparse(name, field, absent)    The key is written only if the field is not `absent`. If the key
//                                  is absent, the field is set to `absent`.
//   Flag(name, field)              A bool. The key is written only if the field is true. A reader
//                                  sets the field to true if the key is there, whatever its value,
//                                  and to false if it is absent.
//   Note(name, value)              Written for people who read the file. Never read back.
//   bool Has(name, is_written)     For a group of keys that are either all there or all absent. A
//                                  writer returns `is_written`. A reader returns true if `name`, a
//                                  key of the group, is there.
//   bool Legacy(name, field)       For a key that only earlier releases wrote. A reader reads it
//                                  and returns true if it was there. A writer returns false.
//
// Types that can be stored:
//   bool, integers, floating point, strings, StrongInt, Json, records
//   enums, as numbers
//   absl::Duration, in nanoseconds
//   absl::Time, in nanoseconds since the archive's `now`
//   types that have a StoredForm
//   std::optional (null if not set), std::vector, std::tuple (an array of fixed length) and
//     std::map (an array of pairs) of these types
// As<Form>(field) stores a field in another form: see forms.h.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/runtime/ids.h"
#include "common/runtime/json.h"
#include "common/runtime/status_macros.h"

namespace lodestar::archive {

// Says how a type is stored wherever it occurs. A specialisation for that type has the functions
// Store() and Load() of a form: see As(). For ChangeWriter it also has bool IsSame(const Value&,
// const Value&).
template <typename Value>
struct StoredForm;

// A field that is stored in the form `Form`: see As.
template <typename Form, typename Value>
struct Formed {
  Value& value;
};

// Returns `value`, to be stored in the form `Form`. A form is a struct with static functions. A
// form for values has
//   Stored Store(const Value& value);
//   absl::Status Load(const Stored& stored, Value& value);  // errors: NotA()
// where an archive can store the type `Stored`. A form for records has
//   template <typename Archive> void Fields(Archive& archive, Value& value);
// which describes the fields in place of Describe(). A form can also be used for a std::vector or
// std::optional of its values.
template <typename Form, typename Value>
Formed<Form, Value> As(Value& value) {
  return {value};
}

template <typename Form, typename Value>
concept Stores = requires(const Value& value) {
  Form::Store(value);
};

// Returns the error for a JSON value that is not `wanted`. The reader puts the field's name before
// it.
inline absl::Status NotA(absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat(" is not ", wanted));
}

// Returns `status` with `name` put in front of its message. `status` is an error in the field
// `name` or in a part of it.
inline absl::Status InField(absl::string_view name, const absl::Status& status) {
  if (status.ok()) return status;
  const absl::string_view rest = status.message();
  return absl::InvalidArgumentError(
      absl::StrCat(name, absl::StartsWith(rest, " ") ? "" : ".", rest));
}

struct JsonStyle {
  absl::Time now = absl::UnixEpoch();  // The origin of every absl::Time.
  // True means that NaN and infinities are written as the texts below. False means that they are
  // lost, because JSON has no numbers for them.
  bool has_special_numbers = false;
};

inline constexpr char kInfiniteText[] = "inf";
inline constexpr char kMinusInfiniteText[] = "-inf";
inline constexpr char kNotANumberText[] = "nan";

// Makes JSON of values. `JsonType` is Json, which keeps the order of Describe(), or SortedJson.
template <typename JsonType>
class BasicJsonWriter {
 public:
  static constexpr bool kReads = false;

  explicit BasicJsonWriter(const JsonStyle& style = {}) : style_(style) {}

  template <typename Value>
  void operator()(const char* name, const Value& value) {
    fields_[name] = Write(value);
  }
  template <typename Value>
  void Optional(const char* name, const Value& value) {
    (*this)(name, value);
  }
  template <typename Value>
  void Sparse(const char* name, const Value& value, const Value& absent = Value()) {
    if (!(value == absent)) (*this)(name, value);
  }
  template <typename Form, typename Value>
  void Sparse(const char* name, Formed<Form, Value> formed, const Value& absent = Value()) {
    if (!(formed.value == absent)) (*this)(name, formed);
  }
  void Flag(const char* name, bool value) {
    if (value) (*this)(name, value);
  }
  template <typename Value>
  void Note(const char* name, const Value& value) {
    (*this)(name, value);
  }
  bool Has(const char* /*name*/, bool is_written) const { return is_written; }
  template <typename Value>
  bool Legacy(const char* /*name*/, const Value& /*value*/) const {
    return false;
  }

  template <typename Value>
  JsonType Write(const Value& value) const {
    if constexpr (std::is_enum_v<Value>) {
      return static_cast<std::underlying_type_t<Value>>(value);
    } else if constexpr (Stores<StoredForm<Value>, Value>) {
      return Write(StoredForm<Value>::Store(value));
    } else {
      BasicJsonWriter inner(style_);
      // A writer only reads the value. The cast is needed because readers use the same Describe().
      Describe(inner, const_cast<Value&>(value));
      return std::move(inner.fields_);
    }
  }
  template <typename Form, typename Value>
  JsonType WriteAs(const Value& value) const {
    return Write(As<Form>(const_cast<Value&>(value)));
  }
  template <typename Form, typename Value>
  JsonType Write(Formed<Form, Value> formed) const {
    if constexpr (Stores<Form, Value>) {
      return Write(Form::Store(formed.value));
    } else {
      BasicJsonWriter inner(style_);
      Form::Fields(inner, formed.value);
      return std::move(inner.fields_);
    }
  }
  template <typename Form, typename Value>
  JsonType Write(Formed<Form, std::optional<Value>> formed) const {
    if constexpr (Stores<Form, std::optional<Value>>) {
      return Write(Form::Store(formed.value));
    } else {
      return formed.value.has_value() ? Write(As<Form>(*formed.value)) : JsonType();
    }
  }
  template <typename Form, typename Value>
  JsonType Write(Formed<Form, std::vector<Value>> formed) const {
    if constexpr (Stores<Form, std::vector<Value>>) {
      return Write(Form::Store(formed.value));
    } else {
      JsonType list = JsonType::array();
      for (Value& value : formed.value) list.push_back(Write(As<Form>(value)));
      return list;
    }
  }
  template <std::integral Value>
  JsonType Write(const Value& value) const {
    return value;
  }
  template <std::floating_point Value>
  JsonType Write(const Value& value) const {
    if (style_.has_special_numbers) {
      if (std::isnan(value)) return kNotANumberText;
      if (std::isinf(value)) return value > 0 ? kInfiniteText : kMinusInfiniteText;
    }
    return static_cast<double>(value);
  }
  JsonType Write(const std::string& value) const { return value; }
  JsonType Write(const JsonType& value) const { return value; }
  JsonType Write(const absl::Duration& value) const {
    if (value == absl::InfiniteDuration()) return kInfiniteText;
    if (value == -absl::InfiniteDuration()) return kMinusInfiniteText;
    return absl::ToInt64Nanoseconds(value);
  }
  JsonType Write(const absl::Time& value) const { return Write(value - style_.now); }
  template <typename Tag, typename Rep>
  JsonType Write(const StrongInt<Tag, Rep>& value) const {
    return value.value();
  }
  template <typename Value>
  JsonType Write(const std::optional<Value>& value) const {
    return value.has_value() ? Write(*value) : JsonType();
  }
  template <typename Value>
  JsonType Write(const std::vector<Value>& values) const {
    JsonType list = JsonType::array();
    for (const Value& value : values) list.push_back(Write(value));
    return list;
  }
  template <typename... Values>
  JsonType Write(const std::tuple<Values...>& values) const {
    JsonType list = JsonType::array();
    std::apply([&](const Values&... value) { (list.push_back(Write(value)), ...); }, values);
    return list;
  }
  template <typename Key, typename Value>
  JsonType Write(const std::map<Key, Value>& values) const {
    JsonType list = JsonType::array();
    for (const auto& [key, value] : values) list.push_back(Write(std::tie(key, value)));
    return list;
  }

 private:
  JsonStyle style_;
  JsonType fields_ = JsonType::object();
};

using JsonWriter = BasicJsonWriter<Json>;

// Makes values of JSON. Unknown keys are ignored. Errors: InvalidArgument, naming the field and
// what was wanted.
class JsonReader {
 public:
  static constexpr bool kReads = true;

  // Reads the keys of `fields`, which must outlive this object.
  explicit JsonReader(const Json& fields, const JsonStyle& style = {})
      : fields_(fields), style_(style) {}

  // Returns the error of the first field that could not be read.
  const absl::Status& status() const { return status_; }

  template <typename Value>
  void operator()(const char* name, Value&& value) {
    if (!status_.ok()) return;
    const auto field = fields_.find(name);
    status_ = InField(name, field == fields_.end() ? NotA("there") : Read(*field, value));
  }
  template <typename Value>
  void Optional(const char* name, Value&& value) {
    if (fields_.contains(name)) (*this)(name, value);
  }
  template <typename Value>
  void Sparse(const char* name, Value& value, const Value& absent = Value()) {
    fields_.contains(name) ? (*this)(name, value) : void(value = absent);
  }
  // Reads an optional, which is not set if the key is absent. If the key is there, its value must
  // not be null.
  template <typename Value>
  void Sparse(const char* name, std::optional<Value>& value) {
    value.reset();
    if (fields_.contains(name)) (*this)(name, value.emplace());
  }
  template <typename Form, typename Value>
  void Sparse(const char* name, Formed<Form, std::optional<Value>> formed) {
    formed.value.reset();
    if (fields_.contains(name)) (*this)(name, As<Form>(formed.value.emplace()));
  }
  template <typename Form, typename Value>
  void Sparse(const char* name, Formed<Form, Value> formed, const Value& absent = Value()) {
    fields_.contains(name) ? (*this)(name, formed) : void(formed.value = absent);
  }
  void Flag(const char* name, bool& value) const { value = fields_.contains(name); }
  template <typename Value>
  void Note(const char* /*name*/, const Value& /*value*/) const {}
  bool Has(const char* name, bool /*is_written*/) const { return fields_.contains(name); }
  template <typename Value>
  bool Legacy(const char* name, Value&& value) {
    Optional(name, value);
    return fields_.contains(name);
  }

  template <typename Value>
  absl::Status Read(const Json& json, Value& value) const {
    if constexpr (std::is_enum_v<Value>) {
      std::underlying_type_t<Value> number = 0;
      RETURN_IF_ERROR(Read(json, number));
      value = static_cast<Value>(number);
      return absl::OkStatus();
    } else if constexpr (Stores<StoredForm<Value>, Value>) {
      return Load<StoredForm<Value>>(json, value);
    } else {
      if (!json.is_object()) return NotA("an object");
      JsonReader inner(json, style_);
      Describe(inner, value);
      return inner.status();
    }
  }
  template <typename Form, typename Value>
  absl::Status Read(const Json& json, Formed<Form, Value> formed) const {
    if constexpr (Stores<Form, Value>) {
      return Load<Form>(json, formed.value);
    } else {
      if (!json.is_object()) return NotA("an object");
      JsonReader inner(json, style_);
      Form::Fields(inner, formed.value);
      return inner.status();
    }
  }
  template <typename Form, typename Value>
  absl::Status Read(const Json& json, Formed<Form, std::optional<Value>> formed) const {
    if constexpr (Stores<Form, std::optional<Value>>) {
      return Load<Form>(json, formed.value);
    } else {
      formed.value.reset();
      return json.is_null() ? absl::OkStatus() : Read(json, As<Form>(formed.value.emplace()));
    }
  }
  template <typename Form, typename Value>
  absl::Status Read(const Json& json, Formed<Form, std::vector<Value>> formed) const {
    if constexpr (Stores<Form, std::vector<Value>>) {
      return Load<Form>(json, formed.value);
    } else {
      if (!json.is_array()) return NotA("a list");
      formed.value.clear();
      for (const Json& entry : json) {
        Value& value = formed.value.emplace_back();
        RETURN_IF_ERROR(InEntry(formed.value.size() - 1, Read(entry, As<Form>(value))));
      }
      return absl::OkStatus();
    }
  }
  absl::Status Read(const Json& json, bool& value) const {
    if (!json.is_boolean()) return NotA("true or false");
    value = json.get<bool>();
    return absl::OkStatus();
  }
  template <std::integral Value>
  absl::Status Read(const Json& json, Value& value) const {
    using Limits = std::numeric_limits<Value>;
    const bool fits = json.is_number_unsigned()
                          ? std::in_range<Value>(json.get<uint64_t>())
                          : json.is_number_integer() && std::in_range<Value>(json.get<int64_t>());
    if (!fits)
      return NotA(absl::StrCat("an integer from ", +Limits::min(), " to ", +Limits::max()));
    value = json.get<Value>();
    return absl::OkStatus();
  }
  template <std::floating_point Value>
  absl::Status Read(const Json& json, Value& value) const {
    using Limits = std::numeric_limits<Value>;
    if (style_.has_special_numbers && json == kNotANumberText) {
      value = Limits::quiet_NaN();
    } else if (style_.has_special_numbers && IsInfinite(json)) {
      value = json == kInfiniteText ? Limits::infinity() : -Limits::infinity();
    } else if (json.is_number() && std::abs(json.get<double>()) <= Limits::max()) {
      value = static_cast<Value>(json.get<double>());
    } else {
      return NotA(absl::StrCat("a number of at most ", Limits::max()));
    }
    return absl::OkStatus();
  }
  absl::Status Read(const Json& json, std::string& value) const {
    if (!json.is_string()) return NotA("a string");
    value = json.get<std::string>();
    return absl::OkStatus();
  }
  absl::Status Read(const Json& json, absl::Duration& value) const {
    if (IsInfinite(json)) {
      value = json == kInfiniteText ? absl::InfiniteDuration() : -absl::InfiniteDuration();
      return absl::OkStatus();
    }
    int64_t nanoseconds = 0;
    RETURN_IF_ERROR(Read(json, nanoseconds));
    value = absl::Nanoseconds(nanoseconds);
    return absl::OkStatus();
  }
  absl::Status Read(const Json& json, absl::Time& value) const {
    absl::Duration since;
    RETURN_IF_ERROR(Read(json, since));
    value = style_.now + since;
    return absl::OkStatus();
  }
  absl::Status Read(const Json& json, Json& value) const {
    value = json;
    return absl::OkStatus();
  }
  template <typename Tag, typename Rep>
  absl::Status Read(const Json& json, StrongInt<Tag, Rep>& value) const {
    Rep number = 0;
    RETURN_IF_ERROR(Read(json, number));
    value = StrongInt<Tag, Rep>(number);
    return absl::OkStatus();
  }
  template <typename Value>
  absl::Status Read(const Json& json, std::optional<Value>& value) const {
    value.reset();
    return json.is_null() ? absl::OkStatus() : Read(json, value.emplace());
  }
  template <typename Value>
  absl::Status Read(const Json& json, std::vector<Value>& values) const {
    if (!json.is_array()) return NotA("a list");
    values.clear();
    for (const Json& entry : json) {
      Value& value = values.emplace_back();
      RETURN_IF_ERROR(InEntry(values.size() - 1, Read(entry, value)));
    }
    return absl::OkStatus();
  }
  template <typename... Values>
  absl::Status Read(const Json& json, std::tuple<Values...>& values) const {
    if (!json.is_array() || json.size() != sizeof...(Values)) {
      return NotA(absl::StrCat("a list of ", sizeof...(Values), " values"));
    }
    absl::Status status;
    size_t next = 0;
    const auto read = [&](auto& value) {
      if (status.ok()) status = InEntry(next, Read(json[next], value));
      ++next;
    };
    std::apply([&](Values&... value) { (read(value), ...); }, values);
    return status;
  }
  template <typename Key, typename Value>
  absl::Status Read(const Json& json, std::map<Key, Value>& values) const {
    std::vector<std::tuple<Key, Value>> pairs;
    RETURN_IF_ERROR(Read(json, pairs));
    values.clear();
    for (auto& [key, value] : pairs) values.insert_or_assign(std::move(key), std::move(value));
    return absl::OkStatus();
  }

 private:
  static bool IsInfinite(const Json& json) {
    return json == kInfiniteText || json == kMinusInfiniteText;
  }
  static absl::Status InEntry(size_t index, const absl::Status& status) {
    return status.ok() ? status : InField(absl::StrCat(index), status);
  }

  template <typename Form, typename Value>
  absl::Status Load(const Json& json, Value& value) const {
    std::decay_t<decltype(Form::Store(value))> stored = {};
    RETURN_IF_ERROR(Read(json, stored));
    return Form::Load(stored, value);
  }

  const Json& fields_;
  JsonStyle style_;
  absl::Status status_;
};

// Return `record` as a JSON object. RecordToJsonAs() uses the form `Form`.
template <typename Record>
Json RecordToJson(const Record& record) {
  return JsonWriter().Write(record);
}
template <typename Form, typename Record>
Json RecordToJsonAs(const Record& record) {
  return JsonWriter().WriteAs<Form>(record);
}

// Reads `record` from a JSON object. Errors: those of JsonReader.
template <typename Record>
absl::Status ReadRecord(const Json& json, Record&& record) {
  const absl::Status status = JsonReader(json).Read(json, record);
  return absl::StartsWith(status.message(), " ") ? InField("the JSON text", status) : status;
}

}  // namespace lodestar::archive
