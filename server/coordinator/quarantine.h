// Names of workers that are not let in because of what they have sent, and why: bounded. Pure data.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace lodestar {

class Quarantine {
 public:
  static constexpr size_t kMaxNames = 1024;
  struct Entry {
    std::string name;
    std::string reason;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  using Memory = std::vector<Entry>;  // the latest last

  Quarantine() = default;
  explicit Quarantine(Memory memory) : entries_(std::move(memory)) {}
  const Memory& memory() const { return entries_; }

  // Beyond kMaxNames, the oldest goes.
  void Add(absl::string_view name, absl::string_view reason) {
    Remove(name);
    if (entries_.size() == kMaxNames) entries_.erase(entries_.begin());
    entries_.push_back({std::string(name), std::string(reason)});
  }
  // False if it is not there.
  bool Remove(absl::string_view name) {
    return std::erase_if(entries_, [name](const Entry& entry) { return entry.name == name; }) > 0;
  }
  // Null: the name is free.
  const std::string* ReasonOf(absl::string_view name) const {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [name](const Entry& entry) { return entry.name == name; });
    return found == entries_.end() ? nullptr : &found->reason;
  }

 private:
  Memory entries_;
};

}  // namespace lodestar
