// By its name, whether a file is of a journal. What such files hold is for their owner alone: keys
// that say who a worker is, and what workers have sent.
#pragma once

#include "absl/strings/string_view.h"

namespace lodestar {

inline constexpr absl::string_view kJournalSuffix = ".journal";

// Also while it is being written ("00000001.journal.unfinished"), and once it was set aside.
inline bool IsOfJournal(absl::string_view path) {
  const absl::string_view name = path.substr(path.rfind('/') + 1);
  const size_t at = name.find(kJournalSuffix);
  if (at == name.npos) return false;
  const absl::string_view rest = name.substr(at + kJournalSuffix.size());
  return rest.empty() || rest.front() == '.';
}

}  // namespace lodestar
