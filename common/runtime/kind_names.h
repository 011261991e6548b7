// The names of an enum's values in flags, files and messages, one table per enum:
//
//   template <>
//   struct KindNames<Anchor> {
//     static constexpr absl::string_view kFlag = "anchor";
//     static constexpr NamedKind<Anchor> kRows[] = {{Anchor::kWorker, "worker"}, ...};
//   };
//
// The specialisation must be in the header that declares the enum.
#pragma once

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

// `kFlag` names the setting in errors.
template <typename Kind>
struct KindNames;

template <typename Kind>
concept HasKindNames = requires {
  KindNames<Kind>::kRows;
};

// Returns the name of `kind`, or "unknown" if `kind` is not a value of its type.
template <HasKindNames Kind>
constexpr absl::string_view NameOf(Kind kind) {
  for (const NamedKind<Kind>& row : KindNames<Kind>::kRows) {
    if (row.kind == kind) return row.name;
  }
  return "unknown";
}

// Returns the value with this name. Errors: InvalidArgument naming the flag, `name` and the known
// names.
template <HasKindNames Kind>
absl::StatusOr<Kind> ParseKind(absl::string_view name) {
  std::string known;
  for (const NamedKind<Kind>& row : KindNames<Kind>::kRows) {
    if (row.name == name) return row.kind;
    absl::StrAppend(&known, known.empty() ? "" : ", ", row.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--", KindNames<Kind>::kFlag, "=", name, " is unknown; allowed: ", known));
}

}  // namespace lodestar
