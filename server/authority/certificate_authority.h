// SPDX-License-Identifier: Apache-2.0

// CertificateAuthority is the authority of a cluster. It has a folder in the coordinator's
// --state_dir, with its key and certificate, and the ledger of tokens and identities. Several
// processes of one user may share the folder. Every call that changes something returns only when
// the change is on disk. The class is thread-safe and blocks for the disk.
//
// Any clock may be wrong, including this machine's. Therefore the authority, and every certificate
// that it issues with kWithAuthority, is valid from 2020 on. If the clock is later set back, no
// such certificate becomes invalid. If the clock is ahead when a certificate is issued, the
// certificate only ends later than it should. The beginning of a certificate does not show when it
// was issued.
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
    // Returns the time of the wall clock.
    std::function<absl::Time()> now = absl::Now;
    // Build time of this program. A clock that shows an earlier time is wrong.
    absl::Time built = process::LinkedBuildStamp().time;
  };

  // Opens the authority, or makes one if the folder has none. Errors: InvalidArgument
  // (certificate_ttl); those of the files; PermissionDenied (other users may read the key);
  // Unavailable (the clock shows a time before the program's build or before the authority's
  // beginning); FailedPrecondition (the authority has ended).
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
    security::Identity identity;
    std::string certificate;
    std::vector<std::string> replaced_ids = {};  // identities that lost this name to the new one
  };
  // Says from which time a certificate is valid. The client that asks for the certificate decides.
  enum class Beginning {
    kWithAuthority,
    // The certificate is valid from now on. Clients of earlier releases need this: they renew a
    // certificate in the middle between its beginning and its end.
    kNow,
  };
  // Uses a token and issues a certificate. Fills in identity_id and until of `enrolment`, which
  // must be empty. `request` is PEM. Errors: those of TokenLedger::Redeem(); InvalidArgument
  // (request).
  absl::StatusOr<Issued> Enroll(TokenLedger::Enrolment enrolment, const std::string& request,
                                Beginning beginning = Beginning::kWithAuthority)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Issues a new certificate for an identity that has one already. Errors: those of
  // TokenLedger::Extend(); InvalidArgument (request).
  absl::StatusOr<Issued> Renew(const security::Identity& identity, const std::string& request,
                               Beginning beginning = Beginning::kWithAuthority)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes sure that `folder` has valid credentials of this machine. Makes or renews a certificate
  // in these cases:
  // - It is missing, revoked, or of another authority, role or name.
  // - It lacks one of `hosts` (see IssueCertificate()).
  // - It is not valid yet, or less than half of its time is left.
  // - It lasts longer than a new one would, because the clock was ahead when it was issued.
  //
  // Errors also: those of the files.
  absl::StatusOr<security::Identity> KeepOwn(const std::string& folder, security::Role role,
                                             const std::string& name,
                                             const std::vector<std::string>& hosts = {})
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns the text of an alarm about the last failure to record or renew something. Empty means
  // that nothing has failed since the last call of this function.
  std::string TakeTrouble() ABSL_LOCKS_EXCLUDED(mutex_);

  // Checks that the identity is not revoked. Reads the disk at most once a second. Errors:
  // Unauthenticated, with the time and the reason of the revocation.
  absl::Status CheckNotRevoked(const security::Identity& identity) ABSL_LOCKS_EXCLUDED(mutex_);
  // Does the same as CheckNotRevoked(), and also checks that the identity's newest certificate has
  // not ended. A connection may stay open longer than the certificate with which it was opened.
  absl::Status CheckHolds(const security::Identity& identity) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the identity of a client that shows a token: see TokenLedger. Reads the disk like
  // CheckNotRevoked().
  absl::StatusOr<security::Identity> IdentityByToken(absl::string_view token_id,
                                                     absl::string_view secret)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the ids of all revoked identities. Each id maps to the error text that
  // CheckNotRevoked() gives for the identity.
  std::map<std::string, std::string> Revoked() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  CertificateAuthority(Config config, Deps deps)
      : config_(std::move(config)), deps_(std::move(deps)) {}
  absl::Status Load();
  // Reads the authority's files in the folder. If the folder has none, makes them.
  absl::Status LoadFiles();
  // Checks that the authority is valid now. Errors: see Open().
  absl::Status CheckAuthorityHolds() const;
  // Reads the ledger from disk if that was not done within the last second.
  void LookAtLedger() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Reads the ledger from disk if the file has been replaced since it was last read.
  absl::Status ReadLedger() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Reads the ledger from disk, applies `change` to it and writes it. Other processes that want to
  // change it wait. After an error nothing has changed. Errors: those of `change` and of the disk.
  absl::Status Change(absl::FunctionRef<absl::Status(TokenLedger&, absl::Time now)> change)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Issues another certificate for the identity. `take` is TokenLedger::Note or
  // TokenLedger::Extend, which records the certificate.
  absl::StatusOr<Issued> IssueAgain(const security::Identity& identity, const std::string& request,
                                    Beginning beginning, const std::vector<std::string>& hosts,
                                    absl::Status (TokenLedger::*take)(const security::Identity&,
                                                                      absl::Time until,
                                                                      absl::Time now))
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::string> Sign(const std::string& request, const security::Identity& identity,
                                   Beginning beginning, absl::Time now,
                                   const std::vector<std::string>& hosts) const;

  const Config config_;
  const Deps deps_;
  security::Authority authority_;
  security::Validity validity_;  // validity of the authority
  std::string sha256_;
  absl::Mutex mutex_;
  TokenLedger ledger_ ABSL_GUARDED_BY(mutex_);
  std::string trouble_ ABSL_GUARDED_BY(mutex_);  // see TakeTrouble()
  absl::Time read_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  // Inode and time of the ledger file that was read last. Each change of the ledger replaces the
  // file by a new one.
  std::pair<ino_t, absl::Time> read_version_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lodestar::authority
