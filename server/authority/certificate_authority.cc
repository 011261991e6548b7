// SPDX-License-Identifier: Apache-2.0

#include "server/authority/certificate_authority.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"
#include "common/runtime/time_text.h"
#include "common/security/secret_file.h"

namespace lodestar::authority {
namespace {

constexpr int64_t kMaxKeyBytes = 1 << 16;
constexpr int64_t kMaxLedgerBytes = int64_t{100} << 20;
constexpr int kTokenIdBytes = 6;
constexpr int kSecretBytes = 20;
constexpr int kIdentityIdBytes = 8;
// The authority never renews its certificate, because join strings contain the hash of it.
constexpr absl::Time kAuthorityBeginning = absl::FromUnixSeconds(1'577'836'800);  // 2020-01-01
constexpr absl::Duration kAuthorityLifetime = absl::Hours(24 * 3650);
// Maximum difference that we allow between the clocks of two machines.
constexpr absl::Duration kClockSlack = absl::Minutes(5);
constexpr absl::Duration kReadInterval = absl::Seconds(1);

// A FolderGuard locks the folder against other processes as long as the guard exists. If the file
// system has no locks (Lustre without -o flock, NFS 3 without lockd), locks nothing.
class FolderGuard {
 public:
  static absl::StatusOr<FolderGuard> Take(const std::string& folder) {
    const std::string path = absl::StrCat(folder, "/LOCK");
    const int descriptor =
        open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
    if (descriptor < 0) return ErrnoStatus(errno, "open", path);
    FolderGuard guard(descriptor);
    while (flock(descriptor, LOCK_EX) != 0) {
      if (errno == EINTR) continue;
      guard.failure_ = ErrnoStatus(errno, "lock", path);
      break;
    }
    return guard;
  }
  FolderGuard(FolderGuard&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), failure_(std::move(other.failure_)) {}
  ~FolderGuard() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  // Returns why the folder could not be locked, or OK.
  const absl::Status& failure() const { return failure_; }

 private:
  explicit FolderGuard(int descriptor) : descriptor_(descriptor) {}

  int descriptor_;
  absl::Status failure_;
};

std::string KeyPath(const std::string& folder) {
  return absl::StrCat(folder, "/authority-key.pem");
}
std::string CertificatePath(const std::string& folder) {
  return absl::StrCat(folder, "/authority.pem");
}
std::string LedgerPath(const std::string& folder) { return absl::StrCat(folder, "/ledger.json"); }

// Adds advice for the operator if `status` says that a file of the authority is damaged or missing.
absl::Status WithAdvice(const std::string& folder, const absl::Status& status) {
  if (!absl::IsDataLoss(status) && !absl::IsInvalidArgument(status) && !absl::IsNotFound(status)) {
    return status;
  }
  return absl::DataLossError(absl::StrCat(
      status.message(), "; ", folder,
      " has the authority of the cluster, but cannot be used in this state. Put its files back "
      "from a copy. Or move the folder away; then all machines must join again"));
}

std::string RevokedText(const IdentityRecord& record) {
  return absl::StrCat(security::TextOf(record.identity), " was revoked at ",
                      UtcText(record.revoked), " (", record.revoked_because, ")");
}

}  // namespace

absl::StatusOr<std::unique_ptr<CertificateAuthority>> CertificateAuthority::Open(Config config,
                                                                                 Deps deps) {
  if (config.certificate_ttl < kShortestTtl || config.certificate_ttl > kLongestTtl) {
    return absl::InvalidArgumentError(
        absl::StrCat("--certificate_ttl=", absl::FormatDuration(config.certificate_ttl),
                     " is out of range; give ", absl::FormatDuration(kShortestTtl), " to ",
                     absl::FormatDuration(kLongestTtl)));
  }
  std::unique_ptr<CertificateAuthority> authority(
      new CertificateAuthority(std::move(config), std::move(deps)));
  RETURN_IF_ERROR(authority->Load());
  return authority;
}

absl::Status CertificateAuthority::Load() {
  const std::string& folder = config_.folder;
  if (const absl::Time now = deps_.now(); now < deps_.built) {
    return absl::UnavailableError(absl::StrCat(
        "the clock of this machine is wrong: it shows ", UtcText(now),
        ", but this program was built after ", UtcText(deps_.built),
        ". Certificates would expire before they are used. Set the clock, and start again"));
  }
  RETURN_IF_ERROR(security::MakeSecretFolder(folder));
  ASSIGN_OR_RETURN(const FolderGuard guard, FolderGuard::Take(folder));
  if (!guard.failure().ok()) {
    logging::LogWarn(
        "{}. If two servers changed this folder at once, a revocation could be lost. Run one "
        "server "
        "at a time with it, or give a --state_dir on a file system with locks",
        guard.failure().message());
  }
  return WithAdvice(folder, LoadFiles());
}

absl::Status CertificateAuthority::LoadFiles() {
  const std::string& folder = config_.folder;
  absl::StatusOr<std::string> key = security::ReadKeptSecretFile(KeyPath(folder), kMaxKeyBytes);
  if (absl::IsNotFound(key.status())) {
    // If the ledger lists machines that have joined, no new authority is made. A new authority
    // would lock those machines out, and would forget which identities were revoked.
    const absl::StatusOr<std::string> ledger =
        security::ReadKeptSecretFile(LedgerPath(folder), kMaxLedgerBytes);
    const absl::StatusOr<TokenLedger> known = TokenLedger::FromJson(ledger.value_or(""));
    if (ledger.ok() && !(known.ok() && known->tokens().empty() && known->identities().empty())) {
      return absl::NotFoundError(absl::StrCat(KeyPath(folder), " is missing, but ",
                                              LedgerPath(folder),
                                              " lists machines that have joined"));
    }
    key = security::NewPrivateKey();
    const absl::Time now = deps_.now();
    ASSIGN_OR_RETURN(authority_.certificate,
                     security::MakeAuthority(
                         *key, {.from = kAuthorityBeginning, .until = now + kAuthorityLifetime}));
    // The key is written last: if the key exists, all files of the authority exist.
    RETURN_IF_ERROR(security::WriteSecretFile(CertificatePath(folder), authority_.certificate));
    RETURN_IF_ERROR(security::WriteSecretFile(LedgerPath(folder), TokenLedger().ToJson()));
    RETURN_IF_ERROR(security::WriteSecretFile(KeyPath(folder), *key));
    logging::LogInfo("the server made the authority of a new cluster in {}", folder);
  }
  RETURN_IF_ERROR(key.status());
  authority_.key = *std::move(key);
  ASSIGN_OR_RETURN(authority_.certificate, ReadWholeFile(CertificatePath(folder), kMaxKeyBytes));
  const absl::Status fits = security::CheckKeyFits(authority_.certificate, authority_.key);
  if (!fits.ok()) {
    return absl::Status(fits.code(),
                        absl::StrCat(CertificatePath(folder), " or ", KeyPath(folder),
                                     " in the same folder is wrong: ", fits.message()));
  }
  ASSIGN_OR_RETURN(sha256_, security::FingerprintOf(authority_.certificate));
  ASSIGN_OR_RETURN(validity_, security::ValidityOf(authority_.certificate));
  RETURN_IF_ERROR(CheckAuthorityHolds());
  absl::MutexLock lock(&mutex_);
  return ReadLedger();
}

absl::Status CertificateAuthority::CheckAuthorityHolds() const {
  const absl::Time now = deps_.now();
  const std::string path = CertificatePath(config_.folder);
  if (now < validity_.from) {
    return absl::UnavailableError(
        absl::StrCat(path, " is valid only from ", UtcText(validity_.from),
                     ", and the clock of this machine shows ", UtcText(now),
                     ". Set the clock, and start again. If the clock is right, move ",
                     config_.folder, " away; then all machines must join again"));
  }
  if (now < validity_.until) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      path, " expired at ", UtcText(validity_.until), ", and the clock of this machine shows ",
      UtcText(now), ". If the clock is right, move ", config_.folder,
      " away; then all machines must join again"));
}

absl::Status CertificateAuthority::ReadLedger() {
  const std::string path = LedgerPath(config_.folder);
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) return ErrnoStatus(errno, "look at", path);
  const std::pair version(facts.st_ino, absl::TimeFromTimespec(facts.st_mtim));
  if (version == read_version_) {
    read_at_ = deps_.now();
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::string text, security::ReadKeptSecretFile(path, kMaxLedgerBytes));
  absl::StatusOr<TokenLedger> ledger = TokenLedger::FromJson(text);
  if (!ledger.ok()) {
    return absl::DataLossError(absl::StrCat(path, ": ", ledger.status().message()));
  }
  ledger_ = *std::move(ledger);
  read_version_ = version;
  read_at_ = deps_.now();
  return absl::OkStatus();
}

absl::Status CertificateAuthority::Change(
    absl::FunctionRef<absl::Status(TokenLedger&, absl::Time now)> change) {
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const FolderGuard guard, FolderGuard::Take(config_.folder));
  RETURN_IF_ERROR(ReadLedger());
  TokenLedger changed = ledger_;
  RETURN_IF_ERROR(change(changed, deps_.now()));
  if (const absl::Status kept =
          security::WriteSecretFile(LedgerPath(config_.folder), changed.ToJson());
      !kept.ok()) {
    trouble_ =
        absl::StrCat("no machine can join, because the server cannot write its list of machines: ",
                     kept.message());
    return absl::UnavailableError(absl::StrCat(
        "the server of shard 0 cannot record the change on its disk: ", kept.message()));
  }
  ledger_ = std::move(changed);
  // An empty version makes the next ReadLedger() read the file that was just written.
  read_version_ = {};
  return absl::OkStatus();
}

std::string CertificateAuthority::TakeTrouble() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(trouble_, "");
}

absl::StatusOr<CertificateAuthority::NewToken> CertificateAuthority::CreateToken(
    const TokenTerms& terms) {
  NewToken token{security::RandomHex(kTokenIdBytes), security::RandomHex(kSecretBytes),
                 absl::InfinitePast()};
  RETURN_IF_ERROR(Change([&](TokenLedger& ledger, absl::Time now) {
    token.expires = now + terms.ttl;
    return ledger.Create(terms, token.id, security::Sha256Hex(token.secret), now);
  }));
  return token;
}

absl::Status CertificateAuthority::RevokeToken(absl::string_view id) {
  return Change([id](TokenLedger& ledger, absl::Time) { return ledger.RevokeToken(id); });
}

absl::StatusOr<TokenLedger::Revocation> CertificateAuthority::Revoke(absl::string_view name,
                                                                     absl::string_view because,
                                                                     bool with_tokens) {
  TokenLedger::Revocation revocation;
  RETURN_IF_ERROR(Change([&](TokenLedger& ledger, absl::Time now) -> absl::Status {
    ASSIGN_OR_RETURN(revocation, ledger.Revoke(name, because, with_tokens, now));
    return absl::OkStatus();
  }));
  return revocation;
}

TokenLedger CertificateAuthority::ledger() {
  absl::MutexLock lock(&mutex_);
  return ledger_;
}

absl::StatusOr<std::string> CertificateAuthority::Sign(
    const std::string& request, const security::Identity& identity, Beginning beginning,
    absl::Time now, const std::vector<std::string>& hosts) const {
  const absl::Time from =
      beginning == Beginning::kNow ? std::max(validity_.from, now - kClockSlack) : validity_.from;
  return security::IssueCertificate(authority_, request, identity,
                                    {.from = from, .until = now + config_.certificate_ttl}, hosts);
}

absl::StatusOr<CertificateAuthority::Issued> CertificateAuthority::Enroll(
    TokenLedger::Enrolment enrolment, const std::string& request, Beginning beginning) {
  enrolment.identity_id = security::RandomHex(kIdentityIdBytes);
  Issued issued;
  RETURN_IF_ERROR(Change([&](TokenLedger& ledger, absl::Time now) -> absl::Status {
    enrolment.until = now + config_.certificate_ttl;
    ASSIGN_OR_RETURN(TokenLedger::Redeemed redeemed, ledger.Redeem(enrolment, now));
    issued.identity = std::move(redeemed.identity);
    issued.replaced_ids = std::move(redeemed.replaced_ids);
    ASSIGN_OR_RETURN(issued.certificate, Sign(request, issued.identity, beginning, now, {}));
    return absl::OkStatus();
  }));
  return issued;
}

absl::StatusOr<CertificateAuthority::Issued> CertificateAuthority::Renew(
    const security::Identity& identity, const std::string& request, Beginning beginning) {
  return IssueAgain(identity, request, beginning, {}, &TokenLedger::Extend);
}

absl::StatusOr<CertificateAuthority::Issued> CertificateAuthority::IssueAgain(
    const security::Identity& identity, const std::string& request, Beginning beginning,
    const std::vector<std::string>& hosts,
    absl::Status (TokenLedger::*take)(const security::Identity&, absl::Time until,
                                      absl::Time now)) {
  Issued issued{identity, ""};
  RETURN_IF_ERROR(Change([&](TokenLedger& ledger, absl::Time now) -> absl::Status {
    RETURN_IF_ERROR((ledger.*take)(identity, now + config_.certificate_ttl, now));
    ASSIGN_OR_RETURN(issued.certificate, Sign(request, identity, beginning, now, hosts));
    return absl::OkStatus();
  }));
  return issued;
}

absl::StatusOr<security::Identity> CertificateAuthority::KeepOwn(
    const std::string& folder, security::Role role, const std::string& name,
    const std::vector<std::string>& hosts) {
  const security::CredentialFiles files = security::CredentialFilesIn(folder);
  const absl::StatusOr<security::CertificateFacts> facts = security::CheckCredentials(files);
  if (absl::IsPermissionDenied(facts.status())) return facts.status();
  security::Identity identity{role, name, security::RandomHex(kIdentityIdBytes)};
  std::string key;
  std::optional<absl::Time> ends;
  if (facts.ok()) {
    ASSIGN_OR_RETURN(const security::Credentials credentials, security::ReadCredentials(files));
    const bool is_own = credentials.authority == authority_.certificate &&
                        facts->identity.role == role && facts->identity.name == name &&
                        CheckNotRevoked(facts->identity).ok();
    if (is_own) {
      identity = facts->identity;
      key = credentials.key;
      ends = facts->validity.until;
      const absl::Time now = deps_.now();
      const absl::Duration rest = facts->validity.until - now;
      if (rest > config_.certificate_ttl / 2 && rest <= config_.certificate_ttl + kClockSlack &&
          facts->validity.from <= now && security::IsForHosts(credentials.certificate, hosts)) {
        return identity;
      }
    }
  }
  if (key.empty()) key = security::NewPrivateKey();
  ASSIGN_OR_RETURN(const std::string request, security::MakeCertificateRequest(key));
  const absl::Status kept = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const Issued issued, IssueAgain(identity, request, Beginning::kWithAuthority,
                                                     hosts, &TokenLedger::Note));
    return security::WriteCredentials(
        folder,
        {.key = key, .certificate = issued.certificate, .authority = authority_.certificate});
  }();
  if (kept.ok()) return identity;
  if (ends.has_value()) {
    absl::MutexLock lock(&mutex_);
    trouble_ =
        absl::StrCat("the certificate of ", name, " ends at ", UtcText(*ends),
                     " and cannot be renewed: ", kept.message(),
                     ". Make room on the disk before then; afterwards no program can connect");
  }
  return kept;
}

void CertificateAuthority::LookAtLedger() {
  // If the ledger cannot be read, the ledger that was read last stays in use. One failed read is no
  // reason to reject all clients.
  if (deps_.now() - read_at_ >= kReadInterval) {
    if (const absl::Status read = ReadLedger(); !read.ok()) {
      read_at_ = deps_.now();
      logging::LogWarn(
          "the list of machines that may connect cannot be read, so the server uses the list that "
          "it knows: {}",
          read.message());
    }
  }
}

absl::StatusOr<security::Identity> CertificateAuthority::IdentityByToken(absl::string_view token_id,
                                                                         absl::string_view secret) {
  absl::MutexLock lock(&mutex_);
  LookAtLedger();
  return ledger_.IdentityByToken(token_id, secret, deps_.now());
}

absl::Status CertificateAuthority::CheckNotRevoked(const security::Identity& identity) {
  absl::MutexLock lock(&mutex_);
  LookAtLedger();
  const IdentityRecord* const revoked = ledger_.FindRevoked(identity);
  return revoked == nullptr ? absl::OkStatus() : absl::UnauthenticatedError(RevokedText(*revoked));
}

absl::Status CertificateAuthority::CheckHolds(const security::Identity& identity) {
  RETURN_IF_ERROR(CheckNotRevoked(identity));
  absl::MutexLock lock(&mutex_);
  const auto found = ledger_.identities().find(identity.id);
  if (found == ledger_.identities().end() || deps_.now() < found->second.expires) {
    return absl::OkStatus();
  }
  return absl::UnauthenticatedError(
      absl::StrCat("the certificate of ", security::TextOf(identity), " expired at ",
                   UtcText(found->second.expires), ", and it is ", UtcText(deps_.now()),
                   " by the clock of this server",
                   "; join again with the join string that `psctl token create` prints"));
}

std::map<std::string, std::string> CertificateAuthority::Revoked() {
  std::map<std::string, std::string> revoked;
  const TokenLedger ledger = this->ledger();
  for (const auto& [id, record] : ledger.identities()) {
    // The result includes identities whose certificate has ended by this machine's clock. By the
    // caller's clock, the certificate may still be valid.
    if (record.is_revoked()) revoked.emplace(id, RevokedText(record));
  }
  return revoked;
}

}  // namespace lodestar::authority
