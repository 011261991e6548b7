// SPDX-License-Identifier: Apache-2.0

// Writes the changes between two values of a record, and applies changes to a record. Changes are
// found field by field: see FieldAddresses. So the record's Describe() (see json_archive.h) has
// these limits:
//   It uses only archive() and Optional(), without As().
//   It describes the same fields for all values.
//   It describes no local variables.
// Describe() must be declared before a ChangeWriter or ChangeReader is used.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/archive/json_archive.h"
#include "common/runtime/json.h"
#include "common/runtime/status_macros.h"

namespace lodestar::archive {

// Collects the addresses of a structure's fields, in the order of Describe(). With these addresses,
// two values of the structure can be compared field by field.
class FieldAddresses {
 public:
  template <typename Value>
  void operator()(const char* /*name*/, Value& value) {
    addresses_.push_back(&value);
  }
  template <typename Value>
  void Optional(const char* name, Value& value) {
    (*this)(name, value);
  }
  // Returns the next field. `Value` must be its type.
  template <typename Value>
  Value& Next() {
    return *static_cast<Value*>(addresses_[next_++]);
  }

 private:
  std::vector<void*> addresses_;
  size_t next_ = 0;
};

template <typename Value>
concept Structure = requires(FieldAddresses& archive, Value& value) {
  Describe(archive, value);
};
// A structure with a member `id`, such as WorkerRecord. A list of such structures is in ascending
// order of `id`.
template <typename Value>
concept HasId = Structure<Value> && requires(Value& value) {
  value.id;
};

template <typename Key, typename Value>
const Key& KeyOf(const std::pair<const Key, Value>& entry) {
  return entry.first;
}
template <HasId Value>
const auto& KeyOf(const Value& entry) {
  return entry.id;
}
template <typename Key, typename Value>
Value& ValueOf(std::pair<const Key, Value>& entry) {
  return entry.second;
}
template <HasId Value>
Value& ValueOf(Value& entry) {
  return entry;
}

// Keys in the JSON of a change. The change of a map, or of a list of HasId, has kGone, kNew and
// kChanged. The change of any other list has kFrom, kKeep, kNew and kEnd.
inline constexpr char kGone[] = "gone";  // List of removed keys.
inline constexpr char kNew[] = "new";    // In a map: pairs of a key and a value. In a list: values.
inline constexpr char kChanged[] = "changed";  // Pairs of a key and the change of its value.
// The new list begins with kKeep consecutive entries of the old list. kFrom is the index of the
// first of these entries in the old list.
inline constexpr char kFrom[] = "from";
inline constexpr char kKeep[] = "keep";
inline constexpr char kEnd[] = "end";  // Number of last entries that both lists share.

// Makes JSON of the difference between two values of one type:
//   a structure: an object with the changes of its fields
//   an optional that was set and is not set now: []
//   an optional that was not set and is set now: [value]
//   an optional structure that is set in both values: the change of the structure
//   another optional that is set in both values: [change]
//   a map, a list: an object with the keys above
//   other types: the new value
class ChangeWriter {
 public:
  explicit ChangeWriter(const JsonStyle& style) : values_(style) {}

  // Returns the change, or null if both values are equal. (The JSON of a change is never null.)
  template <typename Value>
  SortedJson Change(Value& before, Value& after) const {
    if constexpr (Structure<Value>) {
      FieldAddresses addresses;
      Describe(addresses, before);
      Walk walk(*this, std::move(addresses));
      Describe(walk, after);
      return std::move(walk.changes);
    } else if constexpr (Stores<StoredForm<Value>, Value>) {
      return StoredForm<Value>::IsSame(before, after) ? SortedJson() : values_.Write(after);
    } else {
      return before == after ? SortedJson() : values_.Write(after);
    }
  }
  SortedJson Change(double& before, double& after) const {
    return std::bit_cast<uint64_t>(before) == std::bit_cast<uint64_t>(after) ? SortedJson()
                                                                             : values_.Write(after);
  }
  template <typename Value>
  SortedJson Change(std::optional<Value>& before, std::optional<Value>& after) const {
    if (!after.has_value()) return before.has_value() ? SortedJson::array() : SortedJson();
    if (!before.has_value()) return SortedJson::array({values_.Write(*after)});
    SortedJson change = Change(*before, *after);
    if (Structure<Value> || change.is_null()) return change;
    return SortedJson::array({std::move(change)});
  }
  template <typename Key, typename Value>
  SortedJson Change(std::map<Key, Value>& before, std::map<Key, Value>& after) const {
    return ChangeOfKeyed<Value>(before, after);
  }
  template <HasId Value>
  SortedJson Change(std::vector<Value>& before, std::vector<Value>& after) const {
    return ChangeOfKeyed<Value>(before, after);
  }
  template <typename Value>
  SortedJson Change(std::vector<Value>& before, std::vector<Value>& after) const {
    const auto is_same = [this](Value& a, Value& b) { return Change(a, b).is_null(); };
    // Looks for entries that both lists share. `after` begins with `keep` entries of `before`, of
    // which the first has the index `from`. Both lists end with the same `end` entries.
    size_t from = 0;
    if (!after.empty()) {
      while (from < before.size() && !is_same(before[from], after[0])) ++from;
    }
    if (from == before.size()) from = 0;
    size_t keep = 0;
    while (from + keep < before.size() && keep < after.size() &&
           is_same(before[from + keep], after[keep])) {
      ++keep;
    }
    if (from == 0 && keep == before.size() && keep == after.size()) return SortedJson();
    size_t end = 0;
    while (end < before.size() - from - keep && end < after.size() - keep &&
           is_same(before[before.size() - 1 - end], after[after.size() - 1 - end])) {
      ++end;
    }
    SortedJson added = SortedJson::array();
    for (size_t i = keep; i < after.size() - end; ++i) added.push_back(values_.Write(after[i]));
    return {{kFrom, from}, {kKeep, keep}, {kNew, std::move(added)}, {kEnd, end}};
  }

 private:
  // Compares each field of the new value of a structure with the same field of the old value.
  // `fields` has the addresses of the old value's fields.
  struct Walk {
    Walk(const ChangeWriter& writer, FieldAddresses fields)
        : writer(writer), before(std::move(fields)) {}

    template <typename Value>
    void operator()(const char* name, Value& after) {
      SortedJson change = writer.Change(before.Next<Value>(), after);
      if (!change.is_null()) changes[name] = std::move(change);
    }
    template <typename Value>
    void Optional(const char* name, Value& after) {
      (*this)(name, after);
    }

    const ChangeWriter& writer;
    FieldAddresses before;
    SortedJson changes;
  };

  template <typename Value, typename Container>
  SortedJson ChangeOfKeyed(Container& before, Container& after) const {
    SortedJson gone = SortedJson::array();
    SortedJson added = SortedJson::array();
    SortedJson changed = SortedJson::array();
    const auto key_of = [this](auto& entry) {
      auto key = KeyOf(entry);
      return values_.Write(key);
    };
    auto was = before.begin();
    for (auto& entry : after) {
      while (was != before.end() && KeyOf(*was) < KeyOf(entry)) gone.push_back(key_of(*was++));
      Value& value = ValueOf(entry);
      if (was == before.end() || KeyOf(entry) < KeyOf(*was)) {
        added.push_back({key_of(entry), values_.Write(value)});
        continue;
      }
      Value& former = ValueOf(*was++);
      // Most values are equal. Comparing whole values is cheaper than comparing field by field.
      if constexpr (std::equality_comparable<Value>) {
        if (former == value) continue;
      }
      SortedJson change = Change(former, value);
      if (!change.is_null()) changed.push_back({key_of(entry), std::move(change)});
    }
    while (was != before.end()) gone.push_back(key_of(*was++));
    SortedJson all;
    if (!gone.empty()) all[kGone] = std::move(gone);
    if (!added.empty()) all[kNew] = std::move(added);
    if (!changed.empty()) all[kChanged] = std::move(changed);
    return all;
  }

  BasicJsonWriter<SortedJson> values_;
};

// Applies the JSON of ChangeWriter to values. Errors: those of JsonReader.
class ChangeReader {
 public:
  explicit ChangeReader(const JsonStyle& style) : values_(no_fields_, style) {}

  template <typename Value>
  absl::Status Apply(const Json& change, Value& value) const {
    if constexpr (Structure<Value>) {
      if (!change.is_object()) return NotA("an object");
      Walk walk{*this, change, absl::OkStatus()};
      Describe(walk, value);
      return walk.status;
    } else {
      return values_.Read(change, value);
    }
  }
  template <typename Value>
  absl::Status Apply(const Json& change, std::optional<Value>& value) const {
    if (change.is_array()) {
      value.reset();
      return change.empty() ? absl::OkStatus() : values_.Read(change[0], value.emplace());
    }
    if (!Structure<Value> || !value.has_value()) return NotA("a list");
    return Apply(change, *value);
  }
  template <typename Key, typename Value>
  absl::Status Apply(const Json& change, std::map<Key, Value>& values) const {
    if (!change.is_object()) return NotA("an object");
    std::vector<Key> gone;
    RETURN_IF_ERROR(ReadPart(change, kGone, gone));
    for (const Key& key : gone) values.erase(key);
    // ChangeWriter writes each key only once, so the list of pairs can be read into a map.
    std::map<Key, Value> added;
    RETURN_IF_ERROR(ReadPart(change, kNew, added));
    for (auto& [key, value] : added) values.insert_or_assign(key, std::move(value));
    const auto changed = change.find(kChanged);
    if (changed == change.end()) return absl::OkStatus();
    if (!changed->is_array()) return NotA("a list");
    for (const Json& entry : *changed) {
      if (!entry.is_array() || entry.size() != 2) return NotA("a list of pairs");
      Key key;
      RETURN_IF_ERROR(values_.Read(entry[0], key));
      const auto known = values.find(key);
      if (known == values.end())
        return NotA("valid: it changes an entry that this field does not have");
      RETURN_IF_ERROR(Apply(entry[1], known->second));
    }
    return absl::OkStatus();
  }
  template <HasId Value>
  absl::Status Apply(const Json& change, std::vector<Value>& values) const {
    std::map<decltype(Value::id), Value> by_id;
    for (Value& value : values) {
      const auto id = value.id;
      by_id.emplace(id, std::move(value));
    }
    RETURN_IF_ERROR(Apply(change, by_id));
    values.clear();
    for (auto& [id, value] : by_id) values.push_back(std::move(value));
    return absl::OkStatus();
  }
  template <typename Value>
  absl::Status Apply(const Json& change, std::vector<Value>& values) const {
    if (!change.is_object()) return NotA("an object");
    size_t from = 0;
    size_t keep = 0;
    size_t end = 0;
    std::vector<Value> added;
    RETURN_IF_ERROR(ReadPart(change, kFrom, from));
    RETURN_IF_ERROR(ReadPart(change, kKeep, keep));
    RETURN_IF_ERROR(ReadPart(change, kEnd, end));
    RETURN_IF_ERROR(ReadPart(change, kNew, added));
    if (from > values.size() || keep > values.size() - from || end > values.size() - from - keep) {
      return NotA("valid: it keeps entries that this list does not have");
    }
    std::vector<Value> result;
    const auto move = [&result](auto first, auto last) {
      result.insert(result.end(), std::make_move_iterator(first), std::make_move_iterator(last));
    };
    move(values.begin() + from, values.begin() + from + keep);
    move(added.begin(), added.end());
    move(values.end() - end, values.end());
    values = std::move(result);
    return absl::OkStatus();
  }

 private:
  struct Walk {
    template <typename Value>
    void operator()(const char* name, Value& value) {
      if (!status.ok()) return;
      const auto change = changes.find(name);
      if (change != changes.end()) status = InField(name, reader.Apply(*change, value));
    }
    template <typename Value>
    void Optional(const char* name, Value& value) {
      (*this)(name, value);
    }

    const ChangeReader& reader;
    const Json& changes;
    absl::Status status;
  };

  template <typename Value>
  absl::Status ReadPart(const Json& change, const char* name, Value& value) const {
    const auto part = change.find(name);
    return part == change.end() ? absl::OkStatus() : InField(name, values_.Read(*part, value));
  }

  const Json no_fields_ = Json::object();
  JsonReader values_;
};

}  // namespace lodestar::archive
