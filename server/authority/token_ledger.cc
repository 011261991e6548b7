// SPDX-License-Identifier: Apache-2.0

#include "server/authority/token_ledger.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/archive/forms.h"
#include "common/archive/json_archive.h"
#include "common/runtime/json.h"
#include "common/runtime/status_macros.h"
#include "common/runtime/time_text.h"
#include "common/runtime/worker_name.h"
#include "common/security/certificates.h"

namespace lodestar::authority {
namespace {

constexpr int64_t kFormatVersion = 1;
// How long tokens and identities stay in the ledger after they have ended.
constexpr absl::Duration kMemory = absl::Hours(24 * 7);
// How long a clock that has leapt forward must stay ahead before the ledger accepts its time.
constexpr absl::Duration kLeapDoubt = absl::Hours(24);
constexpr int kNameSuffixDigits = 6;
constexpr int64_t kMaxNumber = int64_t{1} << 62;
constexpr absl::string_view kReplaced = "replaced by another machine of the name";

// Checks that a token may be made for this name, and that a machine may ask for it. Errors:
// InvalidArgument.
absl::Status CheckMayBeTaken(absl::string_view name) {
  RETURN_IF_ERROR(CheckName("--name", name, security::kMaxIdentityNameBytes));
  if (!security::IsOwnIdentityName(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--name: the name '", name,
                   "' is reserved for programs on the server's machine; choose another name"));
}

// A ledger in the form of its file. If last_number is missing, the file is from an earlier release,
// which did not number creations and revocations.
struct LedgerFile {
  static constexpr int64_t kNotCounted = std::numeric_limits<int64_t>::min();

  bool has_numbers() const { return last_number != kNotCounted; }

  int64_t last_number = kNotCounted;
  std::vector<TokenRecord> tokens = {};
  std::vector<IdentityRecord> identities = {};
  absl::Time changed = absl::InfinitePast();
  absl::Time leapt = absl::InfiniteFuture();
};

// Checks the number of a creation or revocation in a file. Errors: InvalidArgument (the file has
// numbers, and this one is not from 1 to last_number).
absl::Status CheckNumber(absl::string_view what, int64_t number, const LedgerFile& file) {
  if (!file.has_numbers() || (number >= 1 && number <= file.last_number)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      what, " is ", number, "; allowed are 1 to last_number, which is ", file.last_number));
}

struct RoleForm {
  static std::string Store(security::Role role) { return std::string(security::RoleName(role)); }
  static absl::Status Load(const std::string& text, security::Role& role) {
    const absl::StatusOr<security::Role> parsed = security::ParseRole("role", text);
    if (!parsed.ok()) return archive::NotA(absl::StrCat("known: ", parsed.status().message()));
    role = *parsed;
    return absl::OkStatus();
  }
};

struct InFile {
  template <typename Archive>
  static void Fields(Archive& archive, TokenRecord& token) {
    archive("id", token.id);
    archive("secret_sha256", token.secret_sha256);
    archive("role", archive::As<RoleForm>(token.terms.role));
    archive("ttl_ms", archive::As<archive::MillisecondsForm>(token.terms.ttl));
    archive("max_uses", token.terms.max_uses);
    archive("name", token.terms.name);
    archive("created_unix_ms", archive::As<archive::MillisecondsForm>(token.created));
    archive.Optional("creation", token.creation);
    archive("uses", token.uses);
    archive("is_revoked", token.is_revoked);
  }

  template <typename Archive>
  static void Fields(Archive& archive, IdentityRecord& record) {
    archive("id", record.identity.id);
    archive("role", archive::As<RoleForm>(record.identity.role));
    archive("name", record.identity.name);
    archive("token_id", record.token_id);
    archive("enrolled_unix_ms", archive::As<archive::MillisecondsForm>(record.enrolled));
    archive("expires_unix_ms", archive::As<archive::MillisecondsForm>(record.expires));
    if (!archive.Has("revoked_unix_ms", record.is_revoked())) return;
    archive("revoked_unix_ms", archive::As<archive::MillisecondsForm>(record.revoked));
    archive.Optional("revocation", record.revocation);
    archive("revoked_because", record.revoked_because);
    // A ledger of an earlier release lacks this field. In that case the text of revoked_because
    // shows whether the identity was replaced.
    if constexpr (Archive::kReads) record.is_replaced = record.revoked_because == kReplaced;
    archive.Optional("is_replaced", record.is_replaced);
  }
};

template <typename Archive>
void Describe(Archive& archive, LedgerFile& file) {
  archive.Note("format_version", kFormatVersion);
  archive.Optional("last_number", file.last_number);
  archive("tokens", archive::As<InFile>(file.tokens));
  archive("identities", archive::As<InFile>(file.identities));
  archive.Sparse("changed_unix_ms", archive::As<archive::MillisecondsForm>(file.changed),
                 absl::InfinitePast());
  archive.Sparse("leapt_unix_ms", archive::As<archive::MillisecondsForm>(file.leapt),
                 absl::InfiniteFuture());
}

}  // namespace

absl::Status TokenLedger::Create(const TokenTerms& terms, const std::string& id,
                                 const std::string& secret_sha256, absl::Time now) {
  if (terms.ttl < kShortestTtl || terms.ttl > kLongestTtl) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a token's lifetime (--ttl) is ", absl::FormatDuration(terms.ttl), "; allowed is ",
        absl::FormatDuration(kShortestTtl), " to ", absl::FormatDuration(kLongestTtl)));
  }
  if (terms.max_uses < 0) {
    return absl::InvalidArgumentError(absl::StrCat("a token's number of uses (--uses) is ",
                                                   terms.max_uses,
                                                   "; give 0 for no limit, or a higher number"));
  }
  if (!terms.name.empty()) RETURN_IF_ERROR(CheckMayBeTaken(terms.name));
  Forget(now);
  if (tokens_.size() >= kMaxTokens) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there are ", tokens_.size(),
                     " tokens, the maximum; revoke some with psctl token revoke ID"));
  }
  tokens_[id] = {.id = id,
                 .secret_sha256 = secret_sha256,
                 .terms = terms,
                 .created = now,
                 .creation = ++last_number_};
  return absl::OkStatus();
}

absl::StatusOr<TokenLedger::Redeemed> TokenLedger::Redeem(const Enrolment& enrolment,
                                                          absl::Time now) {
  RETURN_IF_ERROR(FindValid(enrolment.token_id, enrolment.secret, now).status());
  TokenRecord& token = tokens_.at(enrolment.token_id);
  if (token.terms.max_uses > 0 && token.uses >= token.terms.max_uses) {
    return absl::PermissionDeniedError(absl::StrCat(
        "token ", token.id, " has been used ",
        token.uses == 1 ? "once" : absl::StrCat(token.uses, " times"), ", its maximum (--uses=",
        token.terms.max_uses, "); ask for a new join string (psctl token create)"));
  }
  const std::string role(security::RoleName(token.terms.role));
  const std::vector<std::string>& roles = enrolment.roles;
  if (!roles.empty() && std::find(roles.begin(), roles.end(), role) == roles.end()) {
    return absl::PermissionDeniedError(absl::StrCat(
        "token ", token.id, " is for the role ", role, ", but this call needs the role ",
        absl::StrJoin(roles, " or "), ". Ask for a token of that role (psctl token create)"));
  }
  const std::string& wanted = enrolment.name;
  const std::string& bound = token.terms.name;
  if (!bound.empty() && !wanted.empty() && wanted != bound) {
    return absl::PermissionDeniedError(absl::StrCat("token ", token.id, " is for the name '", bound,
                                                    "', but this machine asks for the name '",
                                                    wanted, "'; give --name=", bound));
  }
  std::string name = !bound.empty() ? bound : wanted;
  if (name.empty()) {
    name = absl::StrCat(enrolment.fallback_name, "-",
                        enrolment.identity_id.substr(0, kNameSuffixDigits));
  }
  RETURN_IF_ERROR(CheckMayBeTaken(name));
  Forget(now);
  RETURN_IF_ERROR(CheckNotShutOut(name, token));
  // If the operator has made the token for this name, the machine may take the name from another
  // machine of the token's role.
  RETURN_IF_ERROR(
      CheckFree(name, bound.empty() ? std::nullopt : std::make_optional(token.terms.role), now));
  if (identities_.size() >= kMaxIdentities) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there are ", identities_.size(),
                     " identities, the maximum; an identity is removed a week after its "
                     "certificate has expired"));
  }
  Redeemed redeemed{.identity = {token.terms.role, std::move(name), enrolment.identity_id}};
  if (!bound.empty()) redeemed.replaced_ids = Replace(bound, now);
  ++token.uses;
  IdentityRecord& record = identities_[enrolment.identity_id];
  record = {.identity = redeemed.identity,
            .token_id = token.id,
            .enrolled = now,
            .expires = enrolment.until};
  return redeemed;
}

absl::StatusOr<security::Identity> TokenLedger::IdentityByToken(absl::string_view token_id,
                                                                absl::string_view secret,
                                                                absl::Time now) const {
  ASSIGN_OR_RETURN(const TokenRecord* const token, FindValid(token_id, secret, now));
  if (token->terms.max_uses > 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        "token ", token->id, " can be used only to join, ", token->terms.max_uses,
        token->terms.max_uses == 1 ? " time" : " times",
        ". It cannot replace a certificate. Ask for a token without --uses (psctl token create)"));
  }
  const std::string& bound = token->terms.name;
  std::string name = bound.empty() ? absl::StrCat("token-", token->id) : bound;
  RETURN_IF_ERROR(CheckNotShutOut(name, *token));
  return security::Identity{token->terms.role, std::move(name), absl::StrCat("token-", token->id)};
}

absl::StatusOr<const TokenRecord*> TokenLedger::FindValid(absl::string_view token_id,
                                                          absl::string_view secret,
                                                          absl::Time now) const {
  const auto found = tokens_.find(std::string(token_id));
  // An unknown token and a wrong secret give the same message, so that no client learns which
  // tokens exist.
  if (found == tokens_.end() ||
      !security::AreEqualSecrets(found->second.secret_sha256, security::Sha256Hex(secret))) {
    return absl::PermissionDeniedError(
        "this cluster does not know the token; ask for a new join string (psctl token create)");
  }
  const TokenRecord& token = found->second;
  if (token.is_revoked) {
    return absl::PermissionDeniedError(absl::StrCat(
        "token ", token.id, " was revoked; ask for a new join string (psctl token create)"));
  }
  if (now >= token.expires()) {
    return absl::PermissionDeniedError(absl::StrCat(
        "token ", token.id, " expired at ", UtcText(token.expires()), ", and it is ", UtcText(now),
        " by the clock of the coordinator; ask for a new join string (psctl token create)"));
  }
  return &token;
}

absl::Status TokenLedger::Note(const security::Identity& identity, absl::Time until,
                               absl::Time now) {
  if (const IdentityRecord* revoked = FindRevoked(identity); revoked != nullptr) {
    return absl::PermissionDeniedError(absl::StrCat(security::TextOf(identity), " was revoked at ",
                                                    UtcText(revoked->revoked), " (",
                                                    revoked->revoked_because, ")"));
  }
  Forget(now);
  IdentityRecord& record = identities_[identity.id];
  if (record.identity.id.empty()) {
    record.identity = identity;
    record.enrolled = now;
  }
  record.expires = until;
  return absl::OkStatus();
}

absl::Status TokenLedger::Extend(const security::Identity& identity, absl::Time until,
                                 absl::Time now) {
  const auto found = identities_.find(identity.id);
  if (found == identities_.end()) {
    RETURN_IF_ERROR(CheckFree(identity.name, std::nullopt, now));
  } else if (!found->second.is_revoked() && found->second.expires <= now) {
    return absl::PermissionDeniedError(absl::StrCat(
        "the certificate of ", security::TextOf(identity), " expired at ",
        UtcText(found->second.expires), ", and it is ", UtcText(now),
        " by the clock of the coordinator; ask for a new join string (psctl token create)"));
  }
  return Note(identity, until, now);
}

absl::Status TokenLedger::RevokeToken(absl::string_view id) {
  const auto found = tokens_.find(std::string(id));
  if (found == tokens_.end()) {
    return absl::NotFoundError(
        absl::StrCat("there is no token ", id, "; psctl token list shows all tokens"));
  }
  found->second.is_revoked = true;
  return absl::OkStatus();
}

absl::StatusOr<TokenLedger::Revocation> TokenLedger::Revoke(absl::string_view name,
                                                            absl::string_view because,
                                                            bool with_tokens, absl::Time now) {
  bool is_known = false;
  Revocation revocation;
  std::set<std::string> used_tokens;
  int64_t revocation_before = 0;
  const int64_t number = last_number_ + 1;
  for (auto& [id, record] : identities_) {
    if (record.identity.name != name) continue;
    is_known = true;
    used_tokens.insert(record.token_id);
    if (!record.is_revoked()) ++revocation.num_identities;
    if (!record.is_replaced) revocation_before = std::max(revocation_before, record.revocation);
    record.revoked = now;
    record.revocation = number;
    record.revoked_because = std::string(because);
    record.is_replaced = false;
  }
  if (!is_known) {
    return absl::NotFoundError(
        absl::StrCat("there is no identity '", name, "'; psctl identities shows all identities"));
  }
  last_number_ = number;
  for (const std::string& token_id : used_tokens) {
    const auto token = tokens_.find(token_id);
    if (token == tokens_.end() || !token->second.is_open(now)) continue;
    const bool has_others =
        std::any_of(identities_.begin(), identities_.end(), [&](const auto& entry) {
          const IdentityRecord& record = entry.second;
          return record.token_id == token_id && !record.is_revoked() && record.expires > now;
        });
    token->second.is_revoked = with_tokens || !has_others;
    (token->second.is_revoked ? revocation.ended_tokens : revocation.open_tokens)
        .push_back(token_id);
  }
  for (const auto& [id, token] : tokens_) {
    const bool could_let_it_in = revocation_before > 0 && token.creation > revocation_before &&
                                 token.terms.name.empty() && token.is_open(now);
    if (could_let_it_in && !used_tokens.contains(id)) revocation.open_tokens.push_back(id);
  }
  return revocation;
}

std::vector<std::string> TokenLedger::Replace(absl::string_view name, absl::Time now) {
  std::vector<std::string> replaced_ids;
  for (auto& [id, record] : identities_) {
    if (record.identity.name != name || record.is_revoked()) continue;
    record.revoked = now;
    record.revocation = ++last_number_;
    record.revoked_because = std::string(kReplaced);
    record.is_replaced = true;
    if (record.expires > now) replaced_ids.push_back(id);
  }
  return replaced_ids;
}

absl::Status TokenLedger::CheckNotShutOut(absl::string_view name, const TokenRecord& token) const {
  for (const auto& [id, record] : identities_) {
    if (record.is_replaced || record.revocation < token.creation) continue;
    if (!security::AreNamesInConflict(record.identity.name, name)) continue;
    return absl::PermissionDeniedError(
        absl::StrCat(security::TextOf(record.identity), " was revoked at ", UtcText(record.revoked),
                     " (", record.revoked_because, "), and token ", token.id,
                     " is older than that. To let the name join again, make a new join string: "
                     "psctl token create --name=",
                     name));
  }
  return absl::OkStatus();
}

const IdentityRecord* TokenLedger::FindRevoked(const security::Identity& identity) const {
  const auto found = identities_.find(identity.id);
  return found != identities_.end() && found->second.is_revoked() ? &found->second : nullptr;
}

absl::Status TokenLedger::CheckFree(absl::string_view name,
                                    std::optional<security::Role> replaced_role,
                                    absl::Time now) const {
  for (const auto& [id, record] : identities_) {
    const security::Identity& other = record.identity;
    if (record.is_revoked() || record.expires <= now) continue;
    if (!security::AreNamesInConflict(other.name, name)) continue;
    if (replaced_role == other.role && other.name == name) continue;
    return absl::AlreadyExistsError(
        absl::StrCat("the name '", name, "' is taken by ", security::TextOf(other),
                     ", whose certificate is valid until ", UtcText(record.expires),
                     ". Give another --name. Or replace that machine with the join string that "
                     "`psctl token create --role=",
                     security::RoleName(other.role), " --name=", other.name, "` prints"));
  }
  return absl::OkStatus();
}

bool TokenLedger::IsPlausible(absl::Time now) {
  if (changed_ == absl::InfinitePast() || now - changed_ <= kMemory) {
    changed_ = now;
    leapt_ = absl::InfiniteFuture();
    return true;
  }
  leapt_ = std::min(leapt_, now);
  if (now - leapt_ < kLeapDoubt) return false;
  changed_ = now;
  leapt_ = absl::InfiniteFuture();
  return true;
}

void TokenLedger::Forget(absl::Time now) {
  // If the clock may be wrong, nothing is dropped, because dropping a revocation would undo it.
  if (!IsPlausible(now)) return;
  std::erase_if(tokens_,
                [now](const auto& entry) { return entry.second.expires() + kMemory < now; });
  int64_t oldest_open = kMaxNumber;
  for (const auto& [id, token] : tokens_) {
    if (token.is_open(now)) oldest_open = std::min(oldest_open, token.creation);
  }
  std::erase_if(identities_, [now, oldest_open](const auto& entry) {
    const IdentityRecord& record = entry.second;
    // As long as a valid token is older than the revocation, the revocation stays in the ledger.
    // Without it, a machine could enrol under the revoked name with that token.
    const bool shuts_out = !record.is_replaced && record.revocation > oldest_open;
    return record.expires + kMemory < now && !shuts_out;
  });
}

void TokenLedger::NumberByTime() {
  // If a token and a revocation have the same time, the token gets the lower number. So it counts
  // as older, and cannot bring the revoked name back.
  std::vector<std::tuple<absl::Time, bool, int64_t*>> events;
  for (auto& [id, token] : tokens_) events.emplace_back(token.created, false, &token.creation);
  for (auto& [id, record] : identities_) {
    if (record.is_revoked()) events.emplace_back(record.revoked, true, &record.revocation);
  }
  std::stable_sort(events.begin(), events.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
  });
  for (const auto& [time, is_revocation, number] : events) *number = ++last_number_;
}

std::string TokenLedger::ToJson() const {
  LedgerFile file = {.last_number = last_number_, .changed = changed_, .leapt = leapt_};
  for (const auto& [id, token] : tokens_) file.tokens.push_back(token);
  for (const auto& [id, record] : identities_) file.identities.push_back(record);
  return FormatJson(archive::RecordToJson(file), 1);
}

absl::StatusOr<TokenLedger> TokenLedger::FromJson(absl::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  ASSIGN_OR_RETURN(const int64_t version, GetInt64(json, "format_version"));
  if (version != kFormatVersion) {
    return absl::InvalidArgumentError(absl::StrCat("format_version is ", version,
                                                   ", but this release reads ", kFormatVersion,
                                                   "; use the release that wrote the file"));
  }
  LedgerFile file;
  RETURN_IF_ERROR(archive::ReadRecord(json, file));
  if (file.has_numbers() && (file.last_number < 0 || file.last_number >= kMaxNumber)) {
    return absl::InvalidArgumentError(
        absl::StrCat("last_number is ", file.last_number, "; allowed are 0 to ", kMaxNumber - 1));
  }
  TokenLedger ledger;
  ledger.last_number_ = file.has_numbers() ? file.last_number : 0;
  ledger.changed_ = file.changed;
  ledger.leapt_ = file.leapt;
  for (const TokenRecord& token : file.tokens) {
    RETURN_IF_ERROR(CheckNumber("creation", token.creation, file));
    ledger.tokens_[token.id] = token;
  }
  for (const IdentityRecord& record : file.identities) {
    RETURN_IF_ERROR(
        CheckRecordedName("identity", record.identity.name, security::kMaxIdentityNameBytes));
    if (record.is_revoked()) {
      RETURN_IF_ERROR(CheckNumber("revocation", record.revocation, file));
    }
    ledger.identities_[record.identity.id] = record;
  }
  if (!file.has_numbers()) ledger.NumberByTime();
  return ledger;
}

}  // namespace lodestar::authority
