// Flags by which a program says who it is and whom it believes; the same in all of them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/security/credentials.h"

namespace lodestar {

struct SecurityFlags {
  // --join, else $LODESTAR_JOIN: a join string, or the path of a file with one; empty: none.
  std::string join;
  bool is_join_from_environment = false;
  // Where else a join string is given, for people.
  std::string join_flag = "--join";
  // --state_dir, else where this user's programs keep state; empty: nowhere.
  std::string state_dir;
  // Name of this machine, because several may have one state_dir. Empty means that they have not.
  std::string host;
  // --tls_key, --tls_cert and --tls_ca: all empty, or none.
  CredentialFiles own;
  bool insecure = false;

  bool has_own() const { return !own.key.empty(); }
};

// Errors: those of CompleteSecurityFlags().
absl::StatusOr<SecurityFlags> ReadSecurityFlags();
// What was given, wherever, with what comes from the environment. Errors: InvalidArgument for
// --tls_... that lack one of the three, or stand beside --join, and for an empty $LODESTAR_JOIN.
absl::StatusOr<SecurityFlags> CompleteSecurityFlags(SecurityFlags given);
// For the program's help.
std::vector<std::string> SecurityFlagNames();

// $STATE_DIRECTORY (systemd), $XDG_STATE_HOME/lodestar or ~/.local/state/lodestar; empty if there
// is no such variable.
std::string DefaultStateDir();

// Returns the name of this machine as a part of a file's name, or an empty text if it has none.
std::string HostFileName();

}  // namespace lodestar
