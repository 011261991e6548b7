// SPDX-License-Identifier: Apache-2.0

// Gets the credentials of a program that starts. They are the operator's certificate files
// (--tls_cert), those that a join string brings, those that an earlier start has stored, or none
// (plain text). Stores the credentials of a join string for the next start, and renews them while
// the program runs.
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
  std::optional<security::CredentialFiles> files;  // nullopt means plain text
  std::optional<security::Identity> identity;      // set if `files` is set
  // Addresses of the cluster's servers, HOST:PORT[,HOST:PORT...]. With a join string, they come
  // from the join string. With a stored certificate, they are the `servers` given to
  // EnterCluster(). Empty means that the program uses neither.
  std::string servers;
  bool is_renewable = false;  // true: CredentialRenewer can renew the files
  // Gets new credentials for the same name into `files`, with the join string. Reads the join
  // string again, because its file may have a new one. Null means that the program has no join
  // string. Not thread-safe. Blocks. Errors: those of Enroll() and of the files.
  std::function<absl::Status()> enrol_again = nullptr;

  // Returns the security of a worker or psctl. That object logs what is wrong with the files.
  TransportSecurity MakeSecurity() const {
    return files.has_value() ? TransportSecurity(*files, FileWarnings::kLogged)
                             : TransportSecurity();
  }
};

// Gets credentials. `roles` are the roles that the program may have, its usual role first. `name`
// is the wanted name of the identity. If it is empty, the machine's name is used. Blocks while it
// enrols or asks servers, for at most `timeout` per address.
//
// If the program has neither certificate files nor a join string, it uses the certificate that an
// earlier start has stored for the cluster of `servers`, HOST:PORT[,HOST:PORT...]. It uses plain
// text in these cases:
// - --insecure is given, or `servers` is empty.
// - No earlier start has stored a certificate.
// - A server speaks plain text, and all servers are on this machine.
//
// Errors: those of the files and of Enroll(); PermissionDenied (the credentials are for another
// role); Unauthenticated (a server needs a certificate, none of the stored ones is for it, and no
// other server accepts one); Unavailable, DeadlineExceeded (no server answers, or no answer shows
// which credentials to use).
absl::StatusOr<ClusterEntry> EnterCluster(const security::SecurityFlags& flags,
                                          absl::Span<const security::Role> roles,
                                          const std::string& name, const std::string& servers,
                                          absl::Duration timeout);

// Returns true if an earlier start has stored a certificate for any cluster. See EnterCluster().
bool KeepsCertificate(const security::SecurityFlags& flags, security::Role role,
                      const std::string& name);

// Returns text about certificates of earlier starts that a program with this name cannot use,
// because they were removed or are for other names. The text is for a message that asks for --join.
// Empty means that there are no such certificates.
std::string LeftoversText(const security::SecurityFlags& flags, security::Role role,
                          const std::string& name);

// Removes the certificate, because a server has said that it is not valid any more. `why` is the
// server's reason. A program that looks for a certificate finds none, and reports the reason.
void ThrowAwayCertificate(const security::CredentialFiles& files, absl::string_view why);

// Does the same as EnterCluster(). Programs start in any order, so if no server answers, tries
// again for up to the time in `connect`, and logs that. If `connect.servers` is empty, messages
// name the addresses that are asked. Errors also: Cancelled (`is_interrupted` returned true);
// Unavailable (the time is over).
absl::StatusOr<ClusterEntry> AwaitEntry(const security::SecurityFlags& flags,
                                        absl::Span<const security::Role> roles,
                                        const std::string& name, const std::string& servers,
                                        const std::function<bool()>& is_interrupted,
                                        net::ConnectPatience::Config connect = {});

// Checks that plain text may be used: all addresses are on this machine, or the flags allow it.
// `what` names the addresses in the error. Errors: InvalidArgument.
absl::Status CheckMayBePlain(absl::string_view what, absl::string_view addresses,
                             const security::SecurityFlags& flags);

// Returns the time at which a certificate must be renewed. Its file was written at `written`, and
// it ends at `until`. The time is in the middle between these two, but at most 12 hours after
// `written`. If a clock was ahead when the certificate was made, `until` is too late, and the 12
// hours limit how long the certificate is used. If the clock was set back after `written`, returns
// `now`. Pure.
absl::Time RenewalDue(absl::Time written, absl::Time until, absl::Time now);

// Keeps the files of a program's certificate valid: renews the certificate when RenewalDue() says
// so. Enrols again if the certificate has ended, for example because the machine has slept, or if
// key and certificate do not fit together. Has a thread of its own.
class CredentialRenewer {
 public:
  // `servers` are the addresses that the coordinator may have. `enrol_again`: see ClusterEntry.
  CredentialRenewer(security::CredentialFiles files, std::string servers,
                    std::function<absl::Status()> enrol_again = nullptr);
  ~CredentialRenewer();

  // Renews the certificate once, now. Errors: those of AuthorityService.Renew and of the files.
  absl::Status Renew() ABSL_LOCKS_EXCLUDED(renewal_);
  // Does the same as Renew(). If that fails and the credentials cannot be used any more, enrols
  // again. Errors also: those of `enrol_again`; FailedPrecondition (`enrol_again` is null).
  absl::Status RenewOrEnrol() ABSL_LOCKS_EXCLUDED(renewal_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  const security::CredentialFiles files_;
  const std::string servers_;
  const std::function<absl::Status()> enrol_again_;  // may be null
  const TransportSecurity security_;
  absl::Mutex renewal_;  // held during a renewal
  absl::Mutex mutex_;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mutex_) = nullptr;  // the current call
  std::thread thread_;
};

}  // namespace lodestar::wire
