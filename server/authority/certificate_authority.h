// The authority of a cluster, in a folder of the coordinator's --state_dir: its key and
// certificate, and the ledger of tokens and identities. Several processes of one user may share the
// folder. Everything is on the disk before anybody is told. Thread-safe; blocks for the disk.
//
// Clocks are wrong at times, also that of this machine. The authority begins in 2020, and what it
// issues begins where the authority does: a clock that was ahead makes a certificate end later, and
// a clock that is put back makes none invalid. Only the end of a certificate says how old it is.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/process/version.h"
#include "common/security/credentials.h"
#include "server/authority/token_ledger.h"

namespace lodestar::authority {

class CertificateAuthority {
 public:
  static constexpr absl::Duration kShortestTtl = absl::Minutes(5);
  static constexpr absl::Duration kLongestTtl = absl::Hours(24 * 365);

  struct Config {
    std::string folder;
    absl::Duration certificate_ttl = absl::Hours(24);
  };
  struct Deps {
    // Time of the wall clock.
    std::function<absl::Time()> now = absl::Now;
    // A clock that shows less is wrong: this program was not built yet.
    absl::Time built = LinkedBuildStamp().time;
  };

  // Makes one if the folder has none. Errors: InvalidArgument (ttl), those of the files;
  // PermissionDenied if others may read the key; Unavailable if the clock is behind the program's
  // build or the authority's beginning, FailedPrecondition if the authority has ended.
  static absl::StatusOr<std::unique_ptr<CertificateAuthority>> Open(Config config, Deps deps);

  const std::string& certificate() const { return authority_.certificate; }
  // Returns the SHA-256 of the certificate: 64 hexadecimal digits.
  const std::string& sha256() const { return sha256_; }

  struct NewToken {
    std::string id;
    std::string secret;
    absl::Time expires;
  };
  // See TokenLedger.
  absl::StatusOr<NewToken> CreateToken(const TokenTerms& terms) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status RevokeToken(absl::string_view id) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<TokenLedger::Revocation> Revoke(absl::string_view name, absl::string_view because,
                                                 bool with_tokens) ABSL_LOCKS_EXCLUDED(mutex_);
  TokenLedger ledger() ABSL_LOCKS_EXCLUDED(mutex_);

  struct Issued {
    Identity identity;
    std::string certificate;
    std::vector<std::string> replaced_ids = {};  // who had its name until now
  };
  // From when on a certificate holds that a client asks for.
  enum class Beginning {
    kWithAuthority,
    // For a client that renews after half of the time between beginning and end.
    kNow,
  };
  // `enrolment` without identity_id and until. `request`: PEM.
  absl::StatusOr<Issued> Enroll(TokenLedger::Enrolment enrolment, const std::string& request,
                                Beginning beginning = Beginning::kWithAuthority)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Errors: those of TokenLedger::Extend(); InvalidArgument (request).
  absl::StatusOr<Issued> Renew(const Identity& identity, const std::string& request,
                               Beginning beginning = Beginning::kWithAuthority)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Keeps credentials of this machine in a folder of their own. Makes or renews them if less than
  // half of their time is left, if they hold for longer than certificates do (the clock was ahead
  // when they were issued), if they do not hold yet, or if they lack one of `hosts` (see
  // IssueCertificate()). Errors also: those of the files.
  absl::StatusOr<Identity> KeepOwn(const std::string& folder, Role role, const std::string& name,
                                   const std::vector<std::string>& hosts = {})
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns why something could not be recorded or renewed since the last call, for an alarm.
  // Empty: nothing.
  std::string TakeTrouble() ABSL_LOCKS_EXCLUDED(mutex_);

  // Errors: Unauthenticated, with when and why it was revoked. Looks at the disk at most once a
  // second.
  absl::Status CheckNotRevoked(const Identity& identity) ABSL_LOCKS_EXCLUDED(mutex_);
  // The same for one that comes with a certificate: also if its newest one has ended. A connection
  // outlives the certificate that it was opened with.
  absl::Status CheckHolds(const Identity& identity) ABSL_LOCKS_EXCLUDED(mutex_);
  // See TokenLedger; looks at the disk as CheckNotRevoked() does.
  absl::StatusOr<Identity> IdentityByToken(absl::string_view token_id, absl::string_view secret)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // What CheckNotRevoked() says of all that are revoked, by id.
  std::map<std::string, std::string> Revoked() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  CertificateAuthority(Config config, Deps deps)
      : config_(std::move(config)), deps_(std::move(deps)) {}
  absl::Status Load();
  // Reads the files of the folder, or makes them in one that has none.
  absl::Status LoadFiles();
  // Errors: see Open().
  absl::Status CheckAuthorityHolds() const;
  // At most once a second.
  void LookAtLedger() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Unless it is the one that was read last.
  absl::Status ReadLedger() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Carries out `change` on what is on the disk now, and writes the outcome there. Other processes
  // wait. Errors: the first of both; then nothing has changed.
  absl::Status Change(absl::FunctionRef<absl::Status(TokenLedger&, absl::Time now)> change)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // `take`: notes it in the ledger.
  absl::StatusOr<Issued> IssueAgain(const Identity& identity, const std::string& request,
                                    Beginning beginning, const std::vector<std::string>& hosts,
                                    absl::Status (TokenLedger::*take)(const Identity&,
                                                                      absl::Time until,
                                                                      absl::Time now))
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::string> Sign(const std::string& request, const Identity& identity,
                                   Beginning beginning, absl::Time now,
                                   const std::vector<std::string>& hosts) const;

  const Config config_;
  const Deps deps_;
  Authority authority_;
  Validity validity_;  // of the authority
  std::string sha256_;
  absl::Mutex mutex_;
  TokenLedger ledger_ ABSL_GUARDED_BY(mutex_);
  std::string trouble_ ABSL_GUARDED_BY(mutex_);  // see TakeTrouble()
  absl::Time read_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  // The version of the file that was read: each version is a file of its own.
  std::pair<ino_t, absl::Time> read_version_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::authority
