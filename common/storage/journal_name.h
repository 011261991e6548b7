// SPDX-License-Identifier: Apache-2.0

// Recognises files of a journal by name. These files hold keys that identify workers, and
// contributions of workers. So only their owner may read them.
#pragma once

#include "absl/strings/string_view.h"

namespace lodestar::storage {

inline constexpr absl::string_view kJournalSuffix = ".journal";

// Returns true if `path` is the file of a journal. The suffix may be followed by another one. For
// example, the name "00000001.journal.unfinished" means that the file is being written.
inline bool IsOfJournal(absl::string_view path) {
  const absl::string_view name = path.substr(path.rfind('/') + 1);
  const size_t at = name.find(kJournalSuffix);
  if (at == name.npos) return false;
  const absl::string_view rest = name.substr(at + kJournalSuffix.size());
  return rest.empty() || rest.front() == '.';
}

}  // namespace lodestar::storage
