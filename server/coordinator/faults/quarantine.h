// The names that are shut out, with the reasons: a worker has sent what cannot be right, or an
// operator has ordered it. If a worker has a certificate, the name is that of the certificate, and
// shuts out all workers that may act as it. Bounded. Pure data.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/security/identity.h"

namespace lodestar {

class Quarantine {
 public:
  static constexpr size_t kMaxNames = 1024;
  struct Entry {
    std::string name;
    std::string reason;
    bool is_identity = false;     // with every worker that may act as it
    bool is_by_operator = false;  // else because of what it has sent
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  using Memory = std::vector<Entry>;  // the latest last

  Quarantine() = default;
  explicit Quarantine(Memory memory) : entries_(std::move(memory)) {}
  const Memory& memory() const { return entries_; }

  // Beyond kMaxNames, the oldest goes. One of the same name is replaced, and as wide as it was.
  void Add(Entry added) {
    std::erase_if(entries_, [&added](const Entry& entry) {
      if (entry.name != added.name) return false;
      added.is_identity |= entry.is_identity;
      return true;
    });
    if (entries_.size() == kMaxNames) entries_.erase(entries_.begin());
    entries_.push_back(std::move(added));
  }
  // All that keeps the worker, or the identity, of this name out. False if nothing does.
  bool Remove(absl::string_view name) {
    return std::erase_if(entries_, [name](const Entry& entry) { return Covers(entry, name); }) > 0;
  }
  // Null: the worker of this name is free.
  const Entry* Find(absl::string_view name) const {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [name](const Entry& entry) { return Covers(entry, name); });
    return found == entries_.end() ? nullptr : &*found;
  }

 private:
  static bool Covers(const Entry& entry, absl::string_view name) {
    return entry.name == name || (entry.is_identity && MayActAs(entry.name, name));
  }

  Memory entries_;
};

}  // namespace lodestar
