// How a program comes to its credentials when it starts: its own, those of a join string, which it
// keeps for the next time, or none; and how it keeps them valid while it runs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/security/security_flags.h"
#include "proto/transport_security.h"

namespace lodestar {

struct ClusterEntry {
  std::optional<CredentialFiles> files;  // none: plain text
  std::optional<Identity> identity;      // with files
  // HOST:PORT[,HOST:PORT...] of the join string, or of those that the kept certificate is for;
  // empty: no such.
  std::string servers;
  bool is_renewable = false;  // by CredentialRenewer

  TransportSecurity MakeSecurity() const {
    return files.has_value() ? TransportSecurity(*files) : TransportSecurity();
  }
};

// `roles`: that the program may have, its own first. `name`: wanted for the identity; empty: the
// machine's. `servers`: HOST:PORT[,HOST:PORT...] where the program goes without a join string, and
// uses the certificate there that it has kept for that cluster; in plain text if one of them speaks
// that, and all are on this machine; also if nothing is kept, but for what is of no use. Blocks
// while it enrols or asks, for at most `timeout` at each address. Errors: those of the files and of
// Enroll(); PermissionDenied if the credentials are for another role; Unauthenticated if a server
// wants a certificate, none of those that are kept is for it, and no other server takes one;
// Unavailable, DeadlineExceeded if nobody answers, or not yet in a way that tells what is to be
// used.
absl::StatusOr<ClusterEntry> EnterCluster(const SecurityFlags& flags, absl::Span<const Role> roles,
                                          const std::string& name, const std::string& servers,
                                          absl::Duration timeout);

// Whether there is a certificate of an earlier start, of any cluster. See EnterCluster().
bool KeepsCertificate(const SecurityFlags& flags, Role role, const std::string& name);

// What earlier starts have left that is of no use for one with this name, for a message that asks
// for --join: a certificate that was thrown away, those under other names. Empty: nothing.
std::string LeftoversText(const SecurityFlags& flags, Role role, const std::string& name);

// A server has said that the certificate is worth nothing any more, and `why`: whoever looks for
// one finds none, and says so.
void ThrowAwayCertificate(const CredentialFiles& files, absl::string_view why);

// As EnterCluster(), but waits for as long as no server is there that it can join, and says so in
// the log: programs start in any order. Errors also: Cancelled once `is_interrupted`, which is
// asked now and then.
absl::StatusOr<ClusterEntry> AwaitEntry(const SecurityFlags& flags, absl::Span<const Role> roles,
                                        const std::string& name, const std::string& servers,
                                        const std::function<bool()>& is_interrupted);

// Plain text stays on this machine. `what` names the address for people. Errors: InvalidArgument.
absl::Status CheckMayBePlain(absl::string_view what, absl::string_view addresses,
                             const SecurityFlags& flags);

// Has a certificate of a cluster's authority renewed when half of its time is over, in the files
// where it is. A thread of its own.
class CredentialRenewer {
 public:
  // `servers`: where the coordinator may be.
  CredentialRenewer(CredentialFiles files, std::string servers);
  ~CredentialRenewer();

  // Once, now. Errors: those of the call and of the files.
  absl::Status Renew() ABSL_LOCKS_EXCLUDED(renewal_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  const CredentialFiles files_;
  const std::string servers_;
  const TransportSecurity security_;
  absl::Mutex renewal_;  // one at a time
  absl::Mutex mutex_;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mutex_) = nullptr;  // under way
  std::thread thread_;
};

}  // namespace lodestar
