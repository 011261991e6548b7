// SPDX-License-Identifier: Apache-2.0

// Quarantine holds the names that are shut out, with the reasons. A name is shut out because its
// worker has sent something that cannot be right, or because an operator has ordered it. If the
// worker has a certificate, the entry has the name of the certificate, and shuts out all workers
// that may use this certificate. The number of entries is bounded. Pure data.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/security/identity.h"

namespace lodestar::faults {

class Quarantine {
 public:
  static constexpr size_t kMaxNames = 1024;
  struct Entry {
    std::string name;
    std::string reason;
    bool is_identity = false;     // true: shuts out every worker that may use the name
    bool is_by_operator = false;  // false: because of what a worker has sent
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  using Memory = std::vector<Entry>;  // the latest last

  Quarantine() = default;
  explicit Quarantine(Memory memory) : entries_(std::move(memory)) {}
  const Memory& memory() const { return entries_; }

  // Adds an entry. Beyond kMaxNames, the oldest entry is dropped. An entry of the same name is
  // replaced. If the replaced entry had is_identity, the new entry has it too.
  void Add(Entry added) {
    std::erase_if(entries_, [&added](const Entry& entry) {
      if (entry.name != added.name) return false;
      added.is_identity |= entry.is_identity;
      return true;
    });
    if (entries_.size() == kMaxNames) entries_.erase(entries_.begin());
    entries_.push_back(std::move(added));
  }
  // Removes all entries that shut out the worker or the certificate `name`. Returns false if there
  // were none.
  bool Remove(absl::string_view name) {
    return std::erase_if(entries_, [name](const Entry& entry) { return Covers(entry, name); }) > 0;
  }
  // Returns an entry that shuts out the worker `name`. Null means that the worker is not shut out.
  const Entry* Find(absl::string_view name) const {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [name](const Entry& entry) { return Covers(entry, name); });
    return found == entries_.end() ? nullptr : &*found;
  }

 private:
  static bool Covers(const Entry& entry, absl::string_view name) {
    return entry.name == name || (entry.is_identity && security::MayActAs(entry.name, name));
  }

  Memory entries_;
};

}  // namespace lodestar::faults
