// SPDX-License-Identifier: Apache-2.0

// The names of an enum's values in flags, files and messages. Each enum has a function that returns
// its table:
//
//   constexpr auto KindNames(Anchor) {
//     return TableOf<Anchor>("anchor", {{Anchor::kWorker, "worker"}, ...});
//   }
//
// The function stands beside the enum, in the same header and namespace.
#pragma once

#include <array>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lodestar {

template <typename Kind>
struct NamedKind {
  Kind kind;
  absl::string_view name;
};

// The names of an enum's values. `flag` is the name of the setting that errors name.
template <typename Kind, size_t kCount>
struct KindTable {
  absl::string_view flag;
  std::array<NamedKind<Kind>, kCount> rows;
};

template <typename Kind, size_t kCount>
constexpr KindTable<Kind, kCount> TableOf(absl::string_view flag,
                                          const NamedKind<Kind> (&rows)[kCount]) {
  return {flag, std::to_array(rows)};
}

template <typename Kind>
concept HasKindNames = requires(Kind kind) {
  KindNames(kind);
};

// Returns the name of `kind`, or "unknown" if `kind` is not a value of its type.
template <HasKindNames Kind>
constexpr absl::string_view NameOf(Kind kind) {
  for (const NamedKind<Kind>& row : KindNames(kind).rows) {
    if (row.kind == kind) return row.name;
  }
  return "unknown";
}

// Returns the value with this name. Errors: InvalidArgument naming the flag, `name` and the known
// names.
template <HasKindNames Kind>
absl::StatusOr<Kind> ParseKind(absl::string_view name) {
  constexpr auto kTable = KindNames(Kind());
  std::string known;
  for (const NamedKind<Kind>& row : kTable.rows) {
    if (row.name == name) return row.kind;
    absl::StrAppend(&known, known.empty() ? "" : ", ", row.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--", kTable.flag, "=", name, " is unknown; allowed: ", known));
}

}  // namespace lodestar
