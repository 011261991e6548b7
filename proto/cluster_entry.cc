// SPDX-License-Identifier: Apache-2.0

#include "proto/cluster_entry.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/logging/logging.h"
#include "common/net/address_list.h"
#include "common/net/host_port.h"
#include "common/output/output_file.h"
#include "common/runtime/file_descriptor.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"
#include "common/runtime/time_text.h"
#include "common/security/join_string.h"
#include "common/security/secret_file.h"
#include "proto/authority_service.grpc.pb.h"
#include "proto/bulk_options.h"
#include "proto/enrollment.h"
#include "proto/status_mapping.h"

namespace lodestar::wire {
namespace {

// Minimum remaining life of a certificate. If less is left, the program asks for a new certificate.
constexpr absl::Duration kLeastRest = absl::Minutes(1);
constexpr absl::Duration kEnrolmentTimeout = absl::Seconds(5);
constexpr absl::Duration kEnrolmentPause = absl::Milliseconds(500);
constexpr absl::Duration kLockPause = absl::Milliseconds(20);
constexpr absl::Duration kRenewalTimeout = absl::Seconds(20);
constexpr absl::Duration kFirstPause = absl::Seconds(5);
constexpr absl::Duration kLongestPause = absl::Seconds(30);
// Pause between warnings that a certificate cannot be renewed, if the error has the same code.
constexpr absl::Duration kWarningPause = absl::Minutes(5);
// Interval of checks whether the certificate must be renewed. A long sleep could miss the time of
// renewal, because clocks may be set and machines may be suspended.
constexpr absl::Duration kLookInterval = absl::Seconds(15);
// Maximum age of a certificate. An older certificate is renewed.
constexpr absl::Duration kLongestUse = absl::Hours(12);
constexpr int kHashDigitsOfFolder = 16;
constexpr int64_t kMaxTokenBytes = 128;
constexpr int64_t kMaxReasonBytes = 4096;
constexpr size_t kMaxLeftovers = 4;  // maximum number of certificates in one message

absl::Status CheckRole(const security::Identity& identity, absl::Span<const security::Role> roles,
                       absl::string_view what) {
  if (std::find(roles.begin(), roles.end(), identity.role) != roles.end()) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      what, " is for ", security::TextOf(identity), ", but this program needs the role ",
      absl::StrJoin(roles, " or ",
                    [](std::string* out, security::Role role) {
                      absl::StrAppend(out, security::RoleName(role));
                    }),
      ". Ask for a join string of that role (psctl token create --role=ROLE)"));
}

constexpr char kHostMark = '@';  // no identity's name has this character

// Returns the folder's name for an identity: ROLE-NAME, or ROLE@HOST for a worker or server without
// a name. Several machines may share the state folder, as compute nodes share a home. HOST gives
// each machine a certificate of its own, so that its worker or server can be told from the others.
// psctl needs no HOST.
std::string LeafOf(const security::SecurityFlags& flags, security::Role role,
                   const std::string& name) {
  if (!name.empty()) return absl::StrCat(security::RoleName(role), "-", name);
  const bool is_member = role == security::Role::kWorker || role == security::Role::kServer;
  if (!is_member || flags.host.empty()) return std::string(security::RoleName(role));
  return absl::StrCat(security::RoleName(role), std::string(1, kHostMark), flags.host);
}

// Returns true if the folder named `leaf` is for this role.
bool IsLeafOf(security::Role role, absl::string_view leaf) {
  return absl::ConsumePrefix(&leaf, security::RoleName(role)) &&
         (leaf.empty() || leaf.front() == '-' || leaf.front() == kHostMark);
}

// Returns text for messages: with which --name, or on which host, a program uses the folder `leaf`.
std::string StartsOfLeaf(security::Role role, absl::string_view leaf) {
  leaf.remove_prefix(security::RoleName(role).size());
  if (leaf.empty()) return "without --name";
  return absl::StrCat(leaf.front() == kHostMark ? "on the host " : "with --name=", leaf.substr(1));
}

// Renames the folder of an earlier release to the folder of this machine, `leaf`. The earlier
// release had one folder for all machines, and the first machine that calls this function gets it.
// A link stays at the old path. Programs of the earlier release still find the folder through the
// link, and other machines see that the folder already belongs to one machine.
void TakeSharedFolder(const std::string& cluster, const std::string& leaf, security::Role role) {
  const std::string shared = absl::StrCat(cluster, "/", security::RoleName(role));
  const std::string own = absl::StrCat(cluster, "/", leaf);
  std::error_code error;
  if (leaf == security::RoleName(role) || std::filesystem::exists(own, error) ||
      std::filesystem::is_symlink(shared, error) || !std::filesystem::exists(shared, error)) {
    return;
  }
  if (rename(shared.c_str(), own.c_str()) != 0) return;  // another machine was faster
  if (std::filesystem::is_symlink(own, error)) {         // the other machine has left its link
    rename(own.c_str(), shared.c_str());
    return;
  }
  std::filesystem::create_directory_symlink(leaf, shared, error);
  logging::LogInfo("the certificate in {} is now for this host only, and was moved to {}", shared,
                   own);
}

// A lock that keeps other processes from enrolling into the same folder while this object lives.
class EnrolmentLock {
 public:
  // Waits for the lock for at most `timeout`. `leaf` is the name of the folder. Errors: Unavailable
  // (another process holds the lock; the text names the file); those of the file.
  static absl::StatusOr<EnrolmentLock> Take(const std::string& cluster, const std::string& leaf,
                                            absl::Duration timeout) {
    const std::string path = absl::StrCat(cluster, "/.", leaf, ".lock");
    FileDescriptor file(
        open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
    if (!file.is_open()) return ErrnoStatus(errno, "open", path);
    const absl::Time deadline = absl::Now() + timeout;
    while (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      // A file system without locks is accepted, because folders are always replaced as a whole.
      if (errno == ENOLCK || errno == ENOTSUP || errno == ENOSYS) break;
      if (errno != EWOULDBLOCK && errno != EINTR) return ErrnoStatus(errno, "lock", path);
      if (absl::Now() >= deadline) {
        return absl::UnavailableError(
            absl::StrCat("another process enrols with this cluster, and has held the lock ", path,
                         " for ", absl::FormatDuration(timeout),
                         ". If that process hangs, end it, and start this program again"));
      }
      absl::SleepFor(kLockPause);
    }
    return EnrolmentLock(std::move(file));
  }

 private:
  explicit EnrolmentLock(FileDescriptor file) : file_(std::move(file)) {}

  FileDescriptor file_;
};

// Returns the path of the folder that has one subfolder for each cluster that this user's programs
// have joined.
std::string JoinedFolder(const security::SecurityFlags& flags) {
  return absl::StrCat(flags.state_dir, "/joined");
}

// Returns the flag or variable that gave the join string, without the secret.
std::string JoinOrigin(const security::SecurityFlags& flags) {
  return flags.is_join_from_environment ? "$LODESTAR_JOIN" : flags.join_flag;
}

absl::Status WithOrigin(const security::SecurityFlags& flags, const absl::Status& status) {
  std::error_code error;
  const bool is_file = std::filesystem::exists(flags.join, error);
  return absl::Status(status.code(),
                      absl::StrCat(JoinOrigin(flags), is_file ? "=" : "", is_file ? flags.join : "",
                                   ": ", status.message()));
}

std::string TokenPath(const std::string& folder) { return absl::StrCat(folder, "/token"); }
// Returns the path of the file that says why the certificate in the folder was removed.
std::string ReasonPath(const std::string& folder) { return absl::StrCat(folder, "/thrown_away"); }

// Returns true if the certificate in the folder was not issued for the token of this join string.
bool IsOfAnotherToken(const std::string& folder, const security::JoinString& join) {
  const absl::StatusOr<std::string> token = ReadWholeFile(TokenPath(folder), kMaxTokenBytes);
  return token.ok() && *token != join.token_id;
}

bool IsHeld(const absl::StatusOr<security::CertificateFacts>& facts) {
  const absl::Time now = absl::Now();
  return facts.ok() && facts->validity.until - now > kLeastRest && facts->validity.from <= now;
}

// Returns the time when the file was written, or `now` if that is not known.
absl::Time WrittenAt(const std::string& path, absl::Time now) {
  struct stat facts {};
  return stat(path.c_str(), &facts) == 0 ? absl::TimeFromTimespec(facts.st_mtim) : now;
}

// A join string that is read again before each use, because an operator may have put a new one into
// the file. Not thread-safe.
class RereadJoinString {
 public:
  RereadJoinString(security::SecurityFlags flags, security::JoinString join)
      : flags_(std::move(flags)), join_(std::move(join)) {}

  const security::SecurityFlags& flags() const { return flags_; }
  // Returns the join string. If it cannot be read or is for another cluster, returns the last one
  // that could be used. Logs the reason once.
  const security::JoinString& Read() {
    absl::StatusOr<security::JoinString> join =
        security::ReadJoinString(JoinOrigin(flags_), flags_.join);
    if (join.ok() && join->authority_sha256 != join_.authority_sha256) {
      join = WithOrigin(flags_, absl::InvalidArgumentError(
                                    "the new join string is for another cluster; to change the "
                                    "cluster, start this program again"));
    }
    if (join.ok()) {
      join_ = *std::move(join);
      told_.clear();
    } else if (const std::string why(join.status().message()); std::exchange(told_, why) != why) {
      logging::LogWarn(
          "the new join string cannot be used, so this program keeps the earlier one: {}", told_);
    }
    return join_;
  }

 private:
  const security::SecurityFlags flags_;
  security::JoinString join_;
  std::string told_;  // reason that was logged last; empty means that the last reading was good
};

// Gets new credentials for the name and role of `identity`. Does nothing if another process has got
// them while this one waited for the lock.
absl::Status EnrolAgain(RereadJoinString& reread, const std::string& cluster,
                        const std::string& leaf, const security::Identity& identity) {
  const std::string folder = absl::StrCat(cluster, "/", leaf);
  ASSIGN_OR_RETURN(const EnrolmentLock lock, EnrolmentLock::Take(cluster, leaf, kEnrolmentTimeout));
  if (IsHeld(security::CheckCredentials(security::CredentialFilesIn(folder))))
    return absl::OkStatus();
  const security::JoinString& join = reread.Read();
  const absl::StatusOr<security::Credentials> credentials =
      Enroll(join, {identity.role}, identity.name, kEnrolmentTimeout);
  if (!credentials.ok()) return WithOrigin(reread.flags(), credentials.status());
  RETURN_IF_ERROR(security::WriteCredentials(folder, *credentials));
  RETURN_IF_ERROR(output::WriteFileAtomically(TokenPath(folder), join.token_id));
  logging::LogInfo("enrolled again as {}; the certificate is in {}", security::TextOf(identity),
                   folder);
  return absl::OkStatus();
}

absl::StatusOr<ClusterEntry> EnterByJoinString(const security::SecurityFlags& flags,
                                               absl::Span<const security::Role> roles,
                                               const std::string& name, absl::Duration timeout) {
  ASSIGN_OR_RETURN(const security::JoinString join,
                   security::ReadJoinString(JoinOrigin(flags), flags.join));
  if (flags.state_dir.empty()) {
    return WithOrigin(
        flags, absl::InvalidArgumentError("with a join string, this program needs a folder for its "
                                          "certificate; give --state_dir"));
  }
  const std::string cluster =
      absl::StrCat(JoinedFolder(flags), "/", join.authority_sha256.substr(0, kHashDigitsOfFolder));
  const std::string leaf = LeafOf(flags, roles.front(), name);
  const std::string folder = absl::StrCat(cluster, "/", leaf);
  const security::CredentialFiles files = security::CredentialFilesIn(folder);
  // If psctl is given another join string, it gets another certificate. Workers and servers keep
  // the old certificate, because other processes of this machine may be using it.
  const auto is_of_use = [&](const absl::StatusOr<security::CertificateFacts>& facts) {
    const bool is_outdated =
        roles.front() == security::Role::kOperator && IsOfAnotherToken(folder, join);
    return IsHeld(facts) && !is_outdated;
  };
  TakeSharedFolder(cluster, leaf, roles.front());
  absl::StatusOr<security::CertificateFacts> facts = security::CheckCredentials(files);
  std::optional<EnrolmentLock> lock;
  if (!is_of_use(facts)) {
    RETURN_IF_ERROR(security::MakeSecretFolder(cluster));
    ASSIGN_OR_RETURN(lock, EnrolmentLock::Take(cluster, leaf, timeout));
    facts = security::CheckCredentials(
        files);  // another process may have enrolled before the lock was free
  }
  if (absl::IsPermissionDenied(facts.status())) return facts.status();
  if (!is_of_use(facts)) {
    if (absl::IsInvalidArgument(facts.status())) {
      logging::LogWarn("the certificate in {} cannot be used ({}), so this machine gets a new one",
                       folder, facts.status().message());
    }
    const absl::StatusOr<security::Credentials> enrolled = Enroll(join, roles, name, timeout);
    if (!enrolled.ok()) return WithOrigin(flags, enrolled.status());
    const security::Credentials& credentials = *enrolled;
    ASSIGN_OR_RETURN(facts, security::FactsOf(credentials.certificate));
    if (const absl::Status role = CheckRole(facts->identity, roles, "its token"); !role.ok()) {
      return WithOrigin(flags, role);
    }
    // WriteCredentials() makes a new folder, without the old token file and the old reason. If the
    // process ends before it writes the new token file, the folder has none. The next start then
    // uses the certificate and does not enrol again, because the join string may allow only one
    // enrolment.
    RETURN_IF_ERROR(security::WriteCredentials(folder, credentials));
    RETURN_IF_ERROR(output::WriteFileAtomically(TokenPath(folder), join.token_id));
    logging::LogInfo("enrolled as {} with the authority {}; the certificate is in {}",
                     security::TextOf(facts->identity),
                     join.authority_sha256.substr(0, kHashDigitsOfFolder), folder);
  }
  return ClusterEntry{.files = files,
                      .identity = facts->identity,
                      .servers = join.servers,
                      .is_renewable = true,
                      .enrol_again = [reread = RereadJoinString(flags, join), cluster, leaf,
                                      identity = facts->identity]() mutable {
                        return EnrolAgain(reread, cluster, leaf, identity);
                      }};
}

struct KeptFolder {
  std::string path;
  bool is_joined = false;  // false: this machine's coordinator wrote it
};

// Returns the folders that have a certificate, valid or not, for the role and the name. The first
// is the folder in --state_dir that the coordinator of this machine writes. The others belong to
// the clusters that this machine has joined.
std::vector<KeptFolder> KeptFolders(const security::SecurityFlags& flags, security::Role role,
                                    const std::string& name) {
  if (flags.state_dir.empty()) return {};
  std::vector<KeptFolder> folders;
  std::error_code error;  // the folder may not exist
  const std::string leaf = LeafOf(flags, role, name);
  for (const auto& cluster : std::filesystem::directory_iterator(JoinedFolder(flags), error)) {
    TakeSharedFolder(cluster.path(), leaf, role);
    folders.push_back({absl::StrCat(cluster.path().string(), "/", leaf), /*is_joined=*/true});
  }
  std::sort(folders.begin(), folders.end(),
            [](const KeptFolder& a, const KeptFolder& b) { return a.path < b.path; });
  folders.insert(folders.begin(), {absl::StrCat(flags.state_dir, "/", leaf), /*is_joined=*/false});
  std::erase_if(folders, [&error](const KeptFolder& folder) {
    return !std::filesystem::exists(security::CredentialFilesIn(folder.path).certificate, error);
  });
  return folders;
}

// Returns descriptions of certificates of earlier starts that this start cannot use: certificates
// that were removed, and certificates for other names and hosts.
std::vector<std::string> UselessLeftovers(const security::SecurityFlags& flags, security::Role role,
                                          const std::string& name) {
  if (flags.state_dir.empty()) return {};
  const std::string leaf = LeafOf(flags, role, name);
  std::vector<std::string> leftovers;
  std::error_code error;  // the folder may not exist
  for (const auto& cluster : std::filesystem::directory_iterator(JoinedFolder(flags), error)) {
    for (const auto& entry : std::filesystem::directory_iterator(cluster.path(), error)) {
      if (entry.is_symlink(error)) continue;  // see TakeSharedFolder()
      const std::string folder = entry.path().string();
      const std::string other = entry.path().filename().string();
      const bool is_there =
          std::filesystem::exists(security::CredentialFilesIn(folder).certificate, error);
      if (other == leaf && !is_there) {
        const absl::StatusOr<std::string> why = ReadWholeFile(ReasonPath(folder), kMaxReasonBytes);
        if (!why.ok()) continue;
        leftovers.push_back(
            absl::StrCat("the certificate in ", folder, " was thrown away: ", *why));
      } else if (other != leaf && is_there && IsLeafOf(role, other)) {
        leftovers.push_back(absl::StrCat("the certificate in ", folder,
                                         " is for a program that was started ",
                                         StartsOfLeaf(role, other)));
      }
    }
  }
  std::sort(leftovers.begin(), leftovers.end());
  if (leftovers.size() > kMaxLeftovers) {
    const size_t num_more = leftovers.size() - kMaxLeftovers;
    leftovers.resize(kMaxLeftovers);
    leftovers.push_back(absl::StrCat("and ", num_more, " more"));
  }
  return leftovers;
}

// Chooses a certificate for a server, from the `folders` of earlier starts. `certificate` is the
// server's own certificate. Empty means that the server sent none. In that case a stored
// certificate is chosen only if there is just one that can be used. `reasons` is for the error: it
// says why certificates that are not in `folders` cannot be used. Errors: Unavailable (the server
// sent no certificate, and several could be used; or a clock is wrong); Unauthenticated (none can
// be used); those of CheckRole().
absl::StatusOr<ClusterEntry> ChooseKept(absl::Span<const KeptFolder> folders,
                                        absl::Span<const security::Role> roles,
                                        const std::string& certificate,
                                        std::vector<std::string> reasons) {
  const absl::Time now = absl::Now();
  std::optional<ClusterEntry> chosen;
  for (const auto& [folder, is_joined] : folders) {
    const security::CredentialFiles files = security::CredentialFilesIn(folder);
    const absl::StatusOr<security::CertificateFacts> facts = security::CheckCredentials(files);
    const absl::StatusOr<security::Credentials> kept = security::ReadCredentials(files);
    if (!facts.ok() || !kept.ok()) {
      reasons.push_back(std::string((facts.ok() ? kept.status() : facts.status()).message()));
    } else if (!certificate.empty() && !security::IsSignedBy(certificate, kept->authority)) {
      reasons.push_back(absl::StrCat("the certificate in ", folder, " is for another cluster"));
    } else if (const absl::Status timely = CheckServerTimes(certificate, now);
               !certificate.empty() && !timely.ok()) {
      return timely;
    } else if (!IsHeld(facts)) {
      const security::Validity& validity = facts->validity;
      const bool is_early = now < validity.from;
      reasons.push_back(absl::StrCat("the certificate in ", folder,
                                     is_early                ? " is valid only from "
                                     : validity.until <= now ? " expired at "
                                                             : " ends within a minute, at ",
                                     UtcText(is_early ? validity.from : validity.until),
                                     ", and it is ", UtcText(now),
                                     " by the clock of this machine"));
    } else if (chosen.has_value()) {
      return absl::UnavailableError(absl::StrCat(
          "the server is starting or takes no more connections, and does not say which cluster it "
          "belongs to. So this program cannot choose between the certificates ",
          chosen->files->certificate, " and ", files.certificate));
    } else {
      RETURN_IF_ERROR(CheckRole(facts->identity, roles, files.certificate));
      chosen = ClusterEntry{
          .files = files, .identity = facts->identity, .servers = "", .is_renewable = is_joined};
      if (!certificate.empty()) break;
    }
  }
  if (chosen.has_value()) return *chosen;
  return absl::UnauthenticatedError(absl::StrJoin(reasons, "; "));
}

// Enters the cluster with the certificate from `folders` that the server at `address` accepts.
// `address` is one of `servers`. For the text of errors, `leftovers` describes other certificates
// that cannot be used, and `name` is the identity's name. Errors: Unavailable, DeadlineExceeded (no
// server answers at `address`, or the answer does not show which certificate to use);
// Unauthenticated (no stored certificate can be used); PermissionDenied (the certificate is for
// another role).
absl::StatusOr<ClusterEntry> EnterAt(const security::SecurityFlags& flags,
                                     absl::string_view address, const std::string& servers,
                                     absl::Span<const KeptFolder> folders,
                                     const std::vector<std::string>& leftovers,
                                     absl::Span<const security::Role> roles,
                                     const std::string& name, absl::Duration timeout) {
  const auto at_address = [address](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(address, ": ", status.message()));
  };
  const absl::StatusOr<Greeting> greeting = Greet(std::string(address), timeout);
  if (!greeting.ok()) return at_address(greeting.status());
  if (!greeting->is_tls) {
    // The program may later connect to any of the servers, so plain text must be allowed for all of
    // them.
    for (const absl::string_view server : absl::StrSplit(servers, ',')) {
      if (CheckMayBePlain("", server, security::SecurityFlags()).ok()) continue;
      return absl::UnavailableError(
          absl::StrCat(address, " does not speak TLS, and a connection to another machine",
                       server == address ? "" : absl::StrCat(" (", server, ")"),
                       " may be plain text only with --insecure"));
    }
    return ClusterEntry();
  }
  absl::StatusOr<ClusterEntry> entry = ChooseKept(folders, roles, greeting->certificate, leftovers);
  if (entry.ok()) entry->servers = servers;
  if (absl::IsUnavailable(entry.status())) return at_address(entry.status());
  if (!absl::IsUnauthenticated(entry.status())) return entry;
  return absl::UnauthenticatedError(absl::StrCat(
      "the server at ", address,
      " wants a certificate, and no certificate that this machine keeps for the role ",
      security::RoleName(roles.front()), " can be used: ", entry.status().message(), ". Give ",
      flags.join_flag, " with what `psctl token create --role=", security::RoleName(roles.front()),
      name.empty() ? "" : " --name=", name, "` prints on the coordinator's machine"));
}

// Returns, for messages, the addresses of the servers that EnterCluster() asks.
std::string ServersToAsk(const security::SecurityFlags& flags, const std::string& servers) {
  if (flags.has_own() || flags.join.empty()) return servers;
  const absl::StatusOr<security::JoinString> join =
      security::ReadJoinString(JoinOrigin(flags), flags.join);
  return join.ok() ? join->servers : servers;
}

absl::StatusOr<ClusterEntry> EnterWithKept(const security::SecurityFlags& flags,
                                           absl::Span<const security::Role> roles,
                                           const std::string& name, const std::string& servers,
                                           absl::Duration timeout) {
  const std::vector<KeptFolder> folders = KeptFolders(flags, roles.front(), name);
  const std::vector<std::string> leftovers = UselessLeftovers(flags, roles.front(), name);
  if (folders.empty() && leftovers.empty()) return ClusterEntry();
  // The first Unauthenticated error of a server. If there is none, the last error.
  absl::Status failure;
  for (const absl::string_view address : absl::StrSplit(servers, ',')) {
    absl::StatusOr<ClusterEntry> entry =
        EnterAt(flags, address, servers, folders, leftovers, roles, name, timeout);
    if (entry.ok() || absl::IsPermissionDenied(entry.status())) return entry;
    if (!absl::IsUnauthenticated(failure)) failure = entry.status();
  }
  return failure;
}

}  // namespace

absl::StatusOr<ClusterEntry> EnterCluster(const security::SecurityFlags& flags,
                                          absl::Span<const security::Role> roles,
                                          const std::string& name, const std::string& servers,
                                          absl::Duration timeout) {
  if (flags.has_own()) {
    ASSIGN_OR_RETURN(const security::CertificateFacts facts, security::CheckCredentials(flags.own));
    RETURN_IF_ERROR(CheckRole(facts.identity, roles, flags.own.certificate));
    return ClusterEntry{
        .files = flags.own, .identity = facts.identity, .servers = "", .is_renewable = false};
  }
  if (!flags.join.empty()) return EnterByJoinString(flags, roles, name, timeout);
  if (flags.insecure || servers.empty()) return ClusterEntry();
  return EnterWithKept(flags, roles, name, servers, timeout);
}

bool KeepsCertificate(const security::SecurityFlags& flags, security::Role role,
                      const std::string& name) {
  return !KeptFolders(flags, role, name).empty();
}

std::string LeftoversText(const security::SecurityFlags& flags, security::Role role,
                          const std::string& name) {
  return absl::StrJoin(UselessLeftovers(flags, role, name), "; ");
}

void ThrowAwayCertificate(const security::CredentialFiles& files, absl::string_view why) {
  // The reason is written before the certificate is removed. So a program that starts finds at
  // least one of the two.
  output::WriteFileAtomically(ReasonPath(DirectoryOf(files.certificate)),
                              why.substr(0, static_cast<size_t>(kMaxReasonBytes)))
      .IgnoreError();
  security::ForgetCertificate(files);
}

absl::StatusOr<ClusterEntry> AwaitEntry(const security::SecurityFlags& flags,
                                        absl::Span<const security::Role> roles,
                                        const std::string& name, const std::string& servers,
                                        const std::function<bool()>& is_interrupted,
                                        net::ConnectPatience::Config connect) {
  if (connect.servers.empty()) connect.servers = ServersToAsk(flags, servers);
  net::ConnectPatience patience(std::move(connect));
  std::string told;
  while (!is_interrupted()) {
    const absl::Time began = absl::Now();
    absl::StatusOr<ClusterEntry> entry =
        EnterCluster(flags, roles, name, servers, kEnrolmentTimeout);
    if (!absl::IsUnavailable(entry.status()) && !absl::IsDeadlineExceeded(entry.status())) {
      return entry;
    }
    patience.OnUnanswered(began);
    const absl::Time now = absl::Now();
    const std::string reason(entry.status().message());
    if (patience.IsOver(now)) return patience.Outcome(reason);
    if (std::exchange(told, reason) != reason)
      logging::LogWarn("{}; {}", reason, patience.WhatIsLeft(now));
    absl::SleepFor(kEnrolmentPause);
  }
  return absl::CancelledError("told to stop");
}

absl::Status CheckMayBePlain(absl::string_view what, absl::string_view addresses,
                             const security::SecurityFlags& flags) {
  if (flags.insecure) return absl::OkStatus();
  for (const absl::string_view address : absl::StrSplit(addresses, ',')) {
    const absl::StatusOr<net::HostPort> place =
        net::ParseHostPort(what, address, /*lowest_port=*/0);
    RETURN_IF_ERROR(place.status());
    if (place->IsLoopback()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--", what, "=", address, " is another machine, and without ", flags.join_flag,
        " the connection to it is not encrypted. Give ", flags.join_flag,
        " with what `psctl token create` prints there, or certificates of your own (--tls_cert). "
        "Give --insecure only if everybody on the network may read and change everything"));
  }
  return absl::OkStatus();
}

absl::Time RenewalDue(absl::Time written, absl::Time until, absl::Time now) {
  if (written > now) return now;  // the clock was set back, so the certificate's age is not known
  return std::min(written + (until - written) / 2, written + kLongestUse);
}

CredentialRenewer::CredentialRenewer(security::CredentialFiles files, std::string servers,
                                     std::function<absl::Status()> enrol_again)
    : files_(std::move(files)),
      servers_(std::move(servers)),
      enrol_again_(std::move(enrol_again)),
      security_(files_),
      thread_([this] { Run(); }) {}

CredentialRenewer::~CredentialRenewer() {
  {
    absl::MutexLock lock(&mutex_);
    is_over_ = true;
    if (call_ != nullptr) call_->TryCancel();
  }
  thread_.join();
}

absl::Status CredentialRenewer::Renew() {
  absl::MutexLock lock(&renewal_);
  ASSIGN_OR_RETURN(const security::Credentials credentials, security::ReadCredentials(files_));
  v1::RenewRequest request;
  ASSIGN_OR_RETURN(*request.mutable_certificate_request(),
                   security::MakeCertificateRequest(credentials.key));
  request.set_begins_early(true);
  v1::RenewReply reply;
  const std::vector<std::string> servers = absl::StrSplit(servers_, ',');
  RETURN_IF_ERROR(net::AskCoordinator(servers, [&](const std::string& server) -> absl::Status {
    const auto stub = v1::AuthorityService::NewStub(grpc::CreateCustomChannel(
        server, security_.channel_credentials(), ControlChannelArguments()));
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kRenewalTimeout));
    {
      absl::MutexLock state(&mutex_);
      if (is_over_) return absl::CancelledError("this program is ending");
      call_ = &context;
    }
    absl::Status answer = FromGrpcStatus(stub->Renew(&context, request, &reply));
    absl::MutexLock state(&mutex_);
    call_ = nullptr;
    return answer;
  }));
  RETURN_IF_ERROR(security::CheckKeyFits(reply.certificate(), credentials.key));
  return output::WriteFileAtomically(files_.certificate, reply.certificate());
}

absl::Status CredentialRenewer::RenewOrEnrol() {
  const absl::Status renewed = Renew();
  if (renewed.ok() || absl::IsCancelled(renewed)) return renewed;
  const absl::StatusOr<security::CertificateFacts> facts = security::CheckCredentials(files_);
  const absl::Time now = absl::Now();
  std::string why;
  if (absl::IsInvalidArgument(facts.status())) {
    why = std::string(facts.status().message());
  } else if (facts.ok() && facts->validity.until <= now) {
    why = absl::StrCat("the certificate expired at ", UtcText(facts->validity.until),
                       ", and it is ", UtcText(now), " by the clock of this machine");
  } else {
    return renewed;
  }
  if (enrol_again_ == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        why, "; start this program again with --join and what `psctl token create` prints"));
  }
  absl::MutexLock lock(&renewal_);
  const absl::Status enrolled = enrol_again_();
  if (enrolled.ok()) return enrolled;
  return absl::Status(enrolled.code(), absl::StrCat(why, "; ", enrolled.message()));
}

void CredentialRenewer::Run() {
  const auto is_over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_over_; };
  absl::Duration pause = kFirstPause;
  std::optional<absl::Time> renewed_at;  // when this process has renewed the certificate
  absl::StatusCode warned_code = absl::StatusCode::kOk;  // of the last warning
  absl::Time warned_at;
  while (true) {
    const absl::StatusOr<security::CertificateFacts> facts = security::CheckCredentials(files_);
    absl::Duration rest = pause;
    if (facts.ok()) {
      const absl::Time now = absl::Now();
      // The file's time may come from another machine's clock, so the time at which this process
      // renewed is preferred.
      const absl::Time written = renewed_at.value_or(WrittenAt(files_.certificate, now));
      const absl::Time due = RenewalDue(written, facts->validity.until, now);
      rest = std::max(due - now, pause == kFirstPause ? absl::ZeroDuration() : pause);
    }
    {
      absl::MutexLock lock(&mutex_);
      const absl::Duration longest = std::min(rest, std::max(kLookInterval, pause));
      if (mutex_.AwaitWithTimeout(absl::Condition(&is_over), longest)) return;
      if (longest < rest) continue;
    }
    const absl::Status renewed = RenewOrEnrol();
    if (renewed.ok()) {
      pause = kFirstPause;
      renewed_at = absl::Now();
      warned_code = absl::StatusCode::kOk;
      logging::LogDebug("the certificate in {} is renewed", files_.certificate);
      continue;
    }
    if (absl::IsCancelled(renewed)) continue;
    if (const absl::Time now = absl::Now();
        renewed.code() != warned_code || now - warned_at >= kWarningPause) {
      warned_code = renewed.code();
      warned_at = now;
      logging::LogWarn("the certificate in {} cannot be renewed yet: {}; this program tries again",
                       files_.certificate, renewed.message());
    }
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace lodestar::wire
