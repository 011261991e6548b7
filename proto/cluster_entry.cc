#include "proto/cluster_entry.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/address_list.h"
#include "common/file_io.h"
#include "common/host_port.h"
#include "common/logging.h"
#include "common/output_file.h"
#include "common/security/join_string.h"
#include "common/status_macros.h"
#include "proto/authority_service.grpc.pb.h"
#include "proto/bulk_options.h"
#include "proto/enrollment.h"
#include "proto/status_mapping.h"

namespace lodestar {
namespace {

// What is left of a certificate that is used without asking for another one.
constexpr absl::Duration kLeastRest = absl::Minutes(1);
constexpr absl::Duration kEnrolmentTimeout = absl::Seconds(5);
constexpr absl::Duration kEnrolmentPause = absl::Milliseconds(500);
constexpr absl::Duration kRenewalTimeout = absl::Seconds(20);
constexpr absl::Duration kFirstPause = absl::Seconds(5);
constexpr absl::Duration kLongestPause = absl::Minutes(5);
constexpr int kHashDigitsOfFolder = 16;
constexpr int64_t kMaxTokenBytes = 128;
constexpr int64_t kMaxReasonBytes = 4096;
constexpr size_t kMaxLeftovers = 4;  // that one message names

absl::Status CheckRole(const Identity& identity, absl::Span<const Role> roles,
                       absl::string_view what) {
  if (std::find(roles.begin(), roles.end(), identity.role) != roles.end()) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      what, " is for ", TextOf(identity), "; wanted is the role ",
      absl::StrJoin(roles, " or ",
                    [](std::string* out, Role role) { absl::StrAppend(out, RoleName(role)); })));
}

std::string LeafOf(Role role, const std::string& name) {
  return absl::StrCat("/", RoleName(role), name.empty() ? "" : "-", name);
}

// `leaf`: the name of a folder.
bool IsLeafOf(Role role, absl::string_view leaf) {
  return absl::ConsumePrefix(&leaf, RoleName(role)) && (leaf.empty() || leaf.front() == '-');
}

// Empty: none was wanted.
std::string NameOfLeaf(Role role, absl::string_view leaf) {
  leaf.remove_prefix(RoleName(role).size());
  return leaf.empty() ? "" : std::string(leaf.substr(1));
}

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone());
}

// Where the join string came from; without the secret.
std::string JoinOrigin(const SecurityFlags& flags) {
  return flags.is_join_from_environment ? "$LODESTAR_JOIN" : flags.join_flag;
}

absl::Status WithOrigin(const SecurityFlags& flags, const absl::Status& status) {
  std::error_code error;
  const bool is_file = std::filesystem::exists(flags.join, error);
  return absl::Status(status.code(),
                      absl::StrCat(JoinOrigin(flags), is_file ? "=" : "", is_file ? flags.join : "",
                                   ": ", status.message()));
}

std::string TokenPath(const std::string& folder) { return absl::StrCat(folder, "/token"); }
// Why there is no certificate any more.
std::string ReasonPath(const std::string& folder) { return absl::StrCat(folder, "/thrown_away"); }

absl::Status RemoveToken(const std::string& folder) {
  const std::string path = TokenPath(folder);
  std::error_code error;
  std::filesystem::remove(path, error);  // there may be none
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot remove ", path));
}

// The certificate came by the token of another join string than this one.
bool IsOfAnotherToken(const std::string& folder, const JoinString& join) {
  const absl::StatusOr<std::string> token = ReadWholeFile(TokenPath(folder), kMaxTokenBytes);
  return token.ok() && *token != join.token_id;
}

bool IsHeld(const absl::StatusOr<CertificateFacts>& facts) {
  return facts.ok() && facts->validity.until - absl::Now() > kLeastRest;
}

absl::StatusOr<ClusterEntry> EnterByJoinString(const SecurityFlags& flags,
                                               absl::Span<const Role> roles,
                                               const std::string& name, absl::Duration timeout) {
  ASSIGN_OR_RETURN(const JoinString join, ReadJoinString(JoinOrigin(flags), flags.join));
  if (flags.state_dir.empty()) {
    return WithOrigin(flags, absl::InvalidArgumentError(
                                 "a join string needs a folder for the certificate that it brings: "
                                 "give --state_dir"));
  }
  const std::string folder = absl::StrCat(flags.state_dir, "/joined/",
                                          join.authority_sha256.substr(0, kHashDigitsOfFolder),
                                          LeafOf(roles.front(), name));
  const CredentialFiles files = CredentialFilesIn(folder);
  absl::StatusOr<CertificateFacts> facts = CheckCredentials(files);
  if (absl::IsPermissionDenied(facts.status())) return facts.status();
  // Of psctl another line brings another certificate. What a worker or a server has kept may be
  // that of others of this machine, which run.
  const bool is_outdated = roles.front() == Role::kOperator && IsOfAnotherToken(folder, join);
  if (!IsHeld(facts) || is_outdated) {
    const absl::StatusOr<Credentials> enrolled = Enroll(join, roles, name, timeout);
    if (!enrolled.ok()) return WithOrigin(flags, enrolled.status());
    const Credentials& credentials = *enrolled;
    ASSIGN_OR_RETURN(facts, FactsOf(credentials.certificate));
    if (const absl::Status role = CheckRole(facts->identity, roles, "its token"); !role.ok()) {
      return WithOrigin(flags, role);
    }
    // A start that ends in between leaves no token, so that the next one keeps the certificate: the
    // line may have been good for one.
    RETURN_IF_ERROR(RemoveToken(folder));
    RETURN_IF_ERROR(WriteCredentials(folder, credentials));
    RETURN_IF_ERROR(WriteFileAtomically(TokenPath(folder), join.token_id));
    unlink(ReasonPath(folder).c_str());  // there may be none
    LogInfo("enrolled as {} with the authority {}; the certificate is in {}",
            TextOf(facts->identity), join.authority_sha256.substr(0, kHashDigitsOfFolder), folder);
  }
  return ClusterEntry{
      .files = files, .identity = facts->identity, .servers = join.servers, .is_renewable = true};
}

struct KeptFolder {
  std::string path;
  bool is_joined = false;  // else the coordinator of this machine has written it
};

// Folders with a certificate for the role and the name, whatever it is worth: the one that the
// coordinator of this machine keeps for its user, and those that have joined.
std::vector<KeptFolder> KeptFolders(const SecurityFlags& flags, Role role,
                                    const std::string& name) {
  if (flags.state_dir.empty()) return {};
  std::vector<KeptFolder> folders;
  std::error_code error;  // there may be no such folder
  for (const auto& cluster :
       std::filesystem::directory_iterator(absl::StrCat(flags.state_dir, "/joined"), error)) {
    folders.push_back(
        {absl::StrCat(cluster.path().string(), LeafOf(role, name)), /*is_joined=*/true});
  }
  std::sort(folders.begin(), folders.end(),
            [](const KeptFolder& a, const KeptFolder& b) { return a.path < b.path; });
  folders.insert(folders.begin(),
                 {absl::StrCat(flags.state_dir, LeafOf(role, name)), /*is_joined=*/false});
  std::erase_if(folders, [&error](const KeptFolder& folder) {
    return !std::filesystem::exists(CredentialFilesIn(folder.path).certificate, error);
  });
  return folders;
}

// What an earlier start has left in this user's folders that is of no use for this one, in words: a
// certificate that was thrown away, and those under other names.
std::vector<std::string> UselessLeftovers(const SecurityFlags& flags, Role role,
                                          const std::string& name) {
  if (flags.state_dir.empty()) return {};
  const std::string leaf = LeafOf(role, name).substr(1);
  std::vector<std::string> leftovers;
  std::error_code error;  // there may be no such folder
  for (const auto& cluster :
       std::filesystem::directory_iterator(absl::StrCat(flags.state_dir, "/joined"), error)) {
    for (const auto& entry : std::filesystem::directory_iterator(cluster.path(), error)) {
      const std::string folder = entry.path().string();
      const std::string other = entry.path().filename().string();
      const bool is_there = std::filesystem::exists(CredentialFilesIn(folder).certificate, error);
      if (other == leaf && !is_there) {
        const absl::StatusOr<std::string> why = ReadWholeFile(ReasonPath(folder), kMaxReasonBytes);
        if (!why.ok()) continue;
        leftovers.push_back(absl::StrCat("the one in ", folder, " was thrown away: ", *why));
      } else if (other != leaf && is_there && IsLeafOf(role, other)) {
        const std::string other_name = NameOfLeaf(role, other);
        leftovers.push_back(
            absl::StrCat("the one in ", folder, " is for a start ",
                         other_name.empty() ? "without --name" : "with --name=", other_name));
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

// `certificate`: of the server; empty: it has not shown it, and only if one alone could be meant is
// there an answer. `reasons`: why there are no others. Errors: Unavailable if several could;
// Unauthenticated if none will do; those of CheckRole().
absl::StatusOr<ClusterEntry> ChooseKept(absl::Span<const KeptFolder> folders,
                                        absl::Span<const Role> roles,
                                        const std::string& certificate,
                                        std::vector<std::string> reasons) {
  const absl::Time now = absl::Now();
  std::optional<ClusterEntry> chosen;
  for (const auto& [folder, is_joined] : folders) {
    const CredentialFiles files = CredentialFilesIn(folder);
    const absl::StatusOr<CertificateFacts> facts = CheckCredentials(files);
    const absl::StatusOr<Credentials> kept = ReadCredentials(files);
    if (!facts.ok() || !kept.ok()) {
      reasons.push_back(std::string((facts.ok() ? kept.status() : facts.status()).message()));
    } else if (!certificate.empty() && !CheckIssued(certificate, kept->authority, now).ok()) {
      reasons.push_back(absl::StrCat("the one in ", folder, " is for another cluster"));
    } else if (!IsHeld(facts)) {
      const absl::Time until = facts->validity.until;
      reasons.push_back(absl::StrCat("the one in ", folder,
                                     until <= now ? " has ended at " : " ends within a minute, at ",
                                     TimeText(until)));
    } else if (chosen.has_value()) {
      return absl::UnavailableError(
          absl::StrCat("it is starting, or has no room, and does not say of which cluster it is: "
                       "that of ",
                       chosen->files->certificate, ", of ", files.certificate, " or of another"));
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

// With what is kept in `folders`, as `address` wants it, one of `servers`. `leftovers`: what cannot
// be used. `name`: of a token that would help. Errors: Unavailable,
// DeadlineExceeded if nobody answers there or not in a way that will do; Unauthenticated if nothing
// that is kept will do; PermissionDenied if it is for another role.
absl::StatusOr<ClusterEntry> EnterAt(const SecurityFlags& flags, absl::string_view address,
                                     const std::string& servers,
                                     absl::Span<const KeptFolder> folders,
                                     const std::vector<std::string>& leftovers,
                                     absl::Span<const Role> roles, const std::string& name,
                                     absl::Duration timeout) {
  const auto at_address = [address](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(address, ": ", status.message()));
  };
  const absl::StatusOr<Greeting> greeting = Greet(std::string(address), timeout);
  if (!greeting.ok()) return at_address(greeting.status());
  if (!greeting->is_tls) {
    // Whoever goes on in plain text may be at any of them later.
    for (const absl::string_view server : absl::StrSplit(servers, ',')) {
      if (CheckMayBePlain("", server, SecurityFlags()).ok()) continue;
      return absl::UnavailableError(
          absl::StrCat(address,
                       " does not speak TLS, and plain text stays on this machine unless "
                       "there is --insecure",
                       server == address ? "" : absl::StrCat(": ", server, " is another one")));
    }
    return ClusterEntry();
  }
  absl::StatusOr<ClusterEntry> entry = ChooseKept(folders, roles, greeting->certificate, leftovers);
  if (entry.ok()) entry->servers = servers;
  if (absl::IsUnavailable(entry.status())) return at_address(entry.status());
  if (!absl::IsUnauthenticated(entry.status())) return entry;
  return absl::UnauthenticatedError(absl::StrCat(
      "the server at ", address,
      " wants a certificate, and of those that are kept here for the role ",
      RoleName(roles.front()), " none will do: ", entry.status().message(), "; give ",
      flags.join_flag, " with what `psctl token create --role=", RoleName(roles.front()),
      name.empty() ? "" : " --name=", name, "` prints on the coordinator's machine"));
}

absl::StatusOr<ClusterEntry> EnterWithKept(const SecurityFlags& flags, absl::Span<const Role> roles,
                                           const std::string& name, const std::string& servers,
                                           absl::Duration timeout) {
  const std::vector<KeptFolder> folders = KeptFolders(flags, roles.front(), name);
  const std::vector<std::string> leftovers = UselessLeftovers(flags, roles.front(), name);
  if (folders.empty() && leftovers.empty()) return ClusterEntry();
  absl::Status failure;  // the last; but of who answers and knows none of the certificates, if any
  for (const absl::string_view address : absl::StrSplit(servers, ',')) {
    absl::StatusOr<ClusterEntry> entry =
        EnterAt(flags, address, servers, folders, leftovers, roles, name, timeout);
    if (entry.ok() || absl::IsPermissionDenied(entry.status())) return entry;
    if (!absl::IsUnauthenticated(failure)) failure = entry.status();
  }
  return failure;
}

}  // namespace

absl::StatusOr<ClusterEntry> EnterCluster(const SecurityFlags& flags, absl::Span<const Role> roles,
                                          const std::string& name, const std::string& servers,
                                          absl::Duration timeout) {
  if (flags.has_own()) {
    ASSIGN_OR_RETURN(const CertificateFacts facts, CheckCredentials(flags.own));
    RETURN_IF_ERROR(CheckRole(facts.identity, roles, flags.own.certificate));
    return ClusterEntry{
        .files = flags.own, .identity = facts.identity, .servers = "", .is_renewable = false};
  }
  if (!flags.join.empty()) return EnterByJoinString(flags, roles, name, timeout);
  if (flags.insecure || servers.empty()) return ClusterEntry();
  return EnterWithKept(flags, roles, name, servers, timeout);
}

bool KeepsCertificate(const SecurityFlags& flags, Role role, const std::string& name) {
  return !KeptFolders(flags, role, name).empty();
}

std::string LeftoversText(const SecurityFlags& flags, Role role, const std::string& name) {
  return absl::StrJoin(UselessLeftovers(flags, role, name), "; ");
}

void ThrowAwayCertificate(const CredentialFiles& files, absl::string_view why) {
  // First, so that no start finds neither.
  WriteFileAtomically(ReasonPath(DirectoryOf(files.certificate)),
                      why.substr(0, static_cast<size_t>(kMaxReasonBytes)))
      .IgnoreError();
  ForgetCertificate(files);
}

absl::StatusOr<ClusterEntry> AwaitEntry(const SecurityFlags& flags, absl::Span<const Role> roles,
                                        const std::string& name, const std::string& servers,
                                        const std::function<bool()>& is_interrupted) {
  ChangeLogger logger;
  while (!is_interrupted()) {
    absl::StatusOr<ClusterEntry> entry =
        EnterCluster(flags, roles, name, servers, kEnrolmentTimeout);
    if (!absl::IsUnavailable(entry.status()) && !absl::IsDeadlineExceeded(entry.status())) {
      return entry;
    }
    logger.Log(LogLevel::kWarn, "enrol", absl::StrCat(entry.status().message(), "; trying again"));
    absl::SleepFor(kEnrolmentPause);
  }
  return absl::CancelledError("told to stop");
}

absl::Status CheckMayBePlain(absl::string_view what, absl::string_view addresses,
                             const SecurityFlags& flags) {
  if (flags.insecure) return absl::OkStatus();
  for (const absl::string_view address : absl::StrSplit(addresses, ',')) {
    const absl::StatusOr<HostPort> place = ParseHostPort(what, address, /*lowest_port=*/0);
    RETURN_IF_ERROR(place.status());
    if (place->IsLoopback()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--", what, "=", address, " is another machine, and without ", flags.join_flag,
        " the way there is plain text: give ", flags.join_flag,
        " with what `psctl token create` prints there, certificates of your own (--tls_cert), or "
        "--insecure if whoever is in between may read and change everything"));
  }
  return absl::OkStatus();
}

CredentialRenewer::CredentialRenewer(CredentialFiles files, std::string servers)
    : files_(std::move(files)),
      servers_(std::move(servers)),
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
  ASSIGN_OR_RETURN(const Credentials credentials, ReadCredentials(files_));
  v1::RenewRequest request;
  ASSIGN_OR_RETURN(*request.mutable_certificate_request(), MakeCertificateRequest(credentials.key));
  v1::RenewReply reply;
  const std::vector<std::string> servers = absl::StrSplit(servers_, ',');
  RETURN_IF_ERROR(AskCoordinator(servers, [&](const std::string& server) -> absl::Status {
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
  RETURN_IF_ERROR(CheckKeyFits(reply.certificate(), credentials.key));
  return WriteFileAtomically(files_.certificate, reply.certificate());
}

void CredentialRenewer::Run() {
  const auto is_over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_over_; };
  absl::Duration pause = kFirstPause;
  while (true) {
    const absl::StatusOr<CertificateFacts> facts = CheckCredentials(files_);
    absl::Duration rest = pause;
    if (facts.ok()) {
      const Validity& validity = facts->validity;
      const absl::Time due = validity.from + (validity.until - validity.from) / 2;
      rest = std::max(due - absl::Now(), pause == kFirstPause ? absl::ZeroDuration() : pause);
    }
    {
      absl::MutexLock lock(&mutex_);
      // Clocks that are set meanwhile, and machines that sleep, are no reason to be late.
      const absl::Duration longest = std::min(rest, kLongestPause);
      if (mutex_.AwaitWithTimeout(absl::Condition(&is_over), longest)) return;
      if (longest < rest) continue;
    }
    const absl::Status renewed = Renew();
    if (renewed.ok()) {
      pause = kFirstPause;
      LogDebug("the certificate in {} is renewed", files_.certificate);
      continue;
    }
    if (absl::IsCancelled(renewed)) continue;
    LogWarn("the certificate in {} cannot be renewed yet: {}; trying again", files_.certificate,
            renewed.message());
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace lodestar
