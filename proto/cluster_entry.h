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
#include "common/net/connect_patience.h"
#include "common/security/security_flags.h"
#include "proto/transport_security.h"

namespace lodestar::wire {

struct ClusterEntry {
  std::optional<CredentialFiles> files;  // none: plain text
  std::optional<Identity> identity;      // with files
  // HOST:PORT[,HOST:PORT...] of the join string, or of those that the kept certificate is for. It
  // is empty if there is neither.
  std::string servers;
  bool is_renewable = false;  // by CredentialRenewer
  // Gets new credentials for the same name into `files`, with the join string. Null means that
  // there is no join string. Blocks. Errors: those of Enroll() and of the files.
  std::function<absl::Status()> enrol_again = nullptr;

  TransportSecurity MakeSecurity() const {
    return files.has_value() ? TransportSecurity(*files) : TransportSecurity();
  }
};

// `roles` are those that the program may have, its own first. `name` is wanted for the identity; if
// it is empty, the machine's name is. `servers` is HOST:PORT[,HOST:PORT...], where a program
// without a join string goes. It uses the certificate there that it has kept for that cluster. It
// goes on in plain text if one of them speaks that and all are on this machine, or if nothing is
// kept, not even what is of no use. Blocks while it enrols or asks, for at most `timeout` at each
// address.
//
// Errors: those of the files and of Enroll(); PermissionDenied if the credentials are for another
// role; Unauthenticated if a server wants a certificate, none of those that are kept is for it, and
// no other server takes one; Unavailable, DeadlineExceeded if no server answers, or none yet in a
// way that tells what is to be used.
absl::StatusOr<ClusterEntry> EnterCluster(const SecurityFlags& flags, absl::Span<const Role> roles,
                                          const std::string& name, const std::string& servers,
                                          absl::Duration timeout);

// Returns true if there is a certificate of an earlier start, of any cluster. See EnterCluster().
bool KeepsCertificate(const SecurityFlags& flags, Role role, const std::string& name);

// Returns what earlier starts have left that is of no use for one with this name: a certificate
// that was thrown away, those under other names. It is for a message that asks for --join, and
// empty if there is nothing.
std::string LeftoversText(const SecurityFlags& flags, Role role, const std::string& name);

// Throws the certificate away: a server has said that it is worth nothing any more, and `why`. A
// program that looks for one finds none, and says so.
void ThrowAwayCertificate(const CredentialFiles& files, absl::string_view why);

// Does what EnterCluster() does. If no server answers, it waits for as long as `connect` says and
// logs that: programs start in any order. If `connect.servers` is empty, messages name the
// addresses that are asked. Errors also: Cancelled once `is_interrupted` returns true; Unavailable
// once the time is over.
absl::StatusOr<ClusterEntry> AwaitEntry(const SecurityFlags& flags, absl::Span<const Role> roles,
                                        const std::string& name, const std::string& servers,
                                        const std::function<bool()>& is_interrupted,
                                        ConnectPatience::Config connect = {});

// Plain text stays on this machine. `what` names the address for people. Errors: InvalidArgument.
absl::Status CheckMayBePlain(absl::string_view what, absl::string_view addresses,
                             const SecurityFlags& flags);

// Returns when a certificate that ends at `until` is to be renewed. `written` is when its file was
// written. The certificate is renewed after half of the time from then to `until`, but so soon that
// no program uses for long what a clock that was ahead has made. If the clock was put back since,
// it is renewed now. Pure.
absl::Time RenewalDue(absl::Time written, absl::Time until, absl::Time now);

// Has a certificate of a cluster's authority renewed in the files where it is, once RenewalDue().
// If it has ended, as on a machine that has slept, or if key and certificate do not belong
// together, it enrols again. A thread of its own.
class CredentialRenewer {
 public:
  // `servers`: where the coordinator may be. `enrol_again`: see ClusterEntry.
  CredentialRenewer(CredentialFiles files, std::string servers,
                    std::function<absl::Status()> enrol_again = nullptr);
  ~CredentialRenewer();

  // Renews the certificate once, now. Errors: those of the call and of the files.
  absl::Status Renew() ABSL_LOCKS_EXCLUDED(renewal_);
  // Does what Renew() does, and enrols again if that fails and the credentials are of no use any
  // more. Errors also: those of `enrol_again`; FailedPrecondition if there is none.
  absl::Status RenewOrEnrol() ABSL_LOCKS_EXCLUDED(renewal_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  const CredentialFiles files_;
  const std::string servers_;
  const std::function<absl::Status()> enrol_again_;  // may be null
  const TransportSecurity security_;
  absl::Mutex renewal_;  // one at a time
  absl::Mutex mutex_;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mutex_) = nullptr;  // under way
  std::thread thread_;
};

}  // namespace lodestar::wire
