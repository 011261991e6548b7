// The machines that may join a cluster, and those that have: tokens and the identities that came of
// them. Pure; times are those of the wall clock, because others keep what is written here.
//
// A token is known by the hash of its secret. It has a role, an end, and perhaps a name or a number
// of uses. An identity's name is unique among those that have a certificate that still holds. A
// token with that very name replaces the machine of its role that has it. After a name was revoked,
// only tokens let a machine in under it that are younger than the revocation: by their numbers,
// because clocks are set back. Names of servers that share the authority's folder, and of its user,
// are given to no other machine.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/security/identity.h"

namespace lodestar::authority {

struct TokenTerms {
  Role role = Role::kWorker;
  absl::Duration ttl;
  int64_t max_uses = 0;   // 0 means any number
  std::string name = {};  // the only one that it is for; empty: any that is free

  friend bool operator==(const TokenTerms&, const TokenTerms&) = default;
};

struct TokenRecord {
  std::string id;
  std::string secret_sha256;
  TokenTerms terms;
  absl::Time created;
  int64_t creation = 0;  // its number among the creations and revocations
  int64_t uses = 0;
  bool is_revoked = false;

  friend bool operator==(const TokenRecord&, const TokenRecord&) = default;

  absl::Time expires() const { return created + terms.ttl; }
  bool is_open(absl::Time now) const {
    return !is_revoked && now < expires() && (terms.max_uses == 0 || uses < terms.max_uses);
  }
};

struct IdentityRecord {
  Identity identity;
  std::string token_id;  // empty: issued where the authority is
  absl::Time enrolled;
  absl::Time expires;                           // its newest certificate
  absl::Time revoked = absl::InfiniteFuture();  // when, the last time
  int64_t revocation = 0;                       // its number; 0 means that it is not revoked
  std::string revoked_because = {};
  bool is_replaced = false;  // so it was revoked: the name is another machine's, and not shut out

  friend bool operator==(const IdentityRecord&, const IdentityRecord&) = default;

  bool is_revoked() const { return revoked != absl::InfiniteFuture(); }
};

class TokenLedger {
 public:
  static constexpr size_t kMaxTokens = 1000;
  static constexpr size_t kMaxIdentities = 100'000;
  static constexpr absl::Duration kShortestTtl = absl::Seconds(1);
  static constexpr absl::Duration kLongestTtl = absl::Hours(24 * 365);

  // `id`: new. Errors: InvalidArgument (terms), ResourceExhausted (kMaxTokens that still hold).
  absl::Status Create(const TokenTerms& terms, const std::string& id,
                      const std::string& secret_sha256, absl::Time now);

  struct Enrolment {
    std::string token_id;
    std::string secret;
    std::string name;                // wanted; empty: the token's, else one made of the next
    std::string fallback_name;       // what a machine calls itself
    std::vector<std::string> roles;  // that the program can have; empty: any
    std::string identity_id;         // new
    absl::Time until;                // of the certificate
  };
  struct Redeemed {
    Identity identity;
    std::vector<std::string> replaced_ids = {};  // who had its name until now
  };
  // Counts a use. Errors: PermissionDenied (no such token, another secret, its end, its uses, its
  // role, its name; the name was revoked later than the token was made), InvalidArgument (names),
  // AlreadyExists (the name has a certificate that holds).
  absl::StatusOr<Redeemed> Redeem(const Enrolment& enrolment, absl::Time now);

  // Returns the identity of a client that shows the token itself, where no certificate can be
  // shown: of the token's role and name, or of a name made of its id. That is no enrolment, and
  // counts no use. Errors: those of Redeem() of the token; PermissionDenied for one whose uses are
  // limited, because they could not be counted.
  absl::StatusOr<Identity> IdentityByToken(absl::string_view token_id, absl::string_view secret,
                                           absl::Time now) const;

  // A certificate that is issued without a token, where the authority is. Errors: PermissionDenied
  // if the identity is revoked.
  absl::Status Note(const Identity& identity, absl::Time until, absl::Time now);
  // Notes a certificate that is issued again to the machine that has it. Errors: those of Note();
  // PermissionDenied if it has ended, because its name may be another machine's by now;
  // AlreadyExists if the ledger does not know it, and the name is another's.
  absl::Status Extend(const Identity& identity, absl::Time until, absl::Time now);

  // Errors: NotFound.
  absl::Status RevokeToken(absl::string_view id);

  struct Revocation {
    int num_identities = 0;  // that were not revoked yet
    // Through which they had enrolled: those that are revoked with them, and those that still let
    // in, under any other name. Among the latter also those for any name that are younger than the
    // revocation before this one: through these the name itself could have come back.
    std::vector<std::string> ended_tokens;
    std::vector<std::string> open_tokens;
  };
  // Revokes all that have the name, also those that are revoked already, from now on. A token
  // through which they had enrolled goes with them if no other machine is in through it, or if
  // `with_tokens` says so.
  // Errors: NotFound.
  absl::StatusOr<Revocation> Revoke(absl::string_view name, absl::string_view because,
                                    bool with_tokens, absl::Time now);
  // Null: it is not, or nothing is known of it.
  const IdentityRecord* FindRevoked(const Identity& identity) const;

  // By id.
  const std::map<std::string, TokenRecord>& tokens() const { return tokens_; }
  const std::map<std::string, IdentityRecord>& identities() const { return identities_; }

  std::string ToJson() const;
  // Errors: InvalidArgument.
  static absl::StatusOr<TokenLedger> FromJson(absl::string_view text);

 private:
  // Drops what is over and shown no more.
  void Forget(absl::Time now);
  // Notes the time of a change. Returns false if the clock may be ahead: it has leapt by more than
  // what is remembered, and has not gone on from there for long.
  bool IsPlausible(absl::Time now);
  // Errors: PermissionDenied (no such token, another secret, revoked, its end).
  absl::StatusOr<const TokenRecord*> FindValid(absl::string_view token_id, absl::string_view secret,
                                               absl::Time now) const;
  // Returns OK if no machine has the name, or one that conflicts with it. With `replaced_role`, a
  // machine of that very name and role may have it. Errors: AlreadyExists.
  absl::Status CheckFree(absl::string_view name, std::optional<Role> replaced_role,
                         absl::Time now) const;
  // Errors: PermissionDenied.
  absl::Status CheckNotShutOut(absl::string_view name, const TokenRecord& token) const;
  // Numbers what was written down without numbers by its times.
  void NumberByTime();
  // Gives the name to another machine. Returns the ids of those that had it.
  std::vector<std::string> Replace(absl::string_view name, absl::Time now);

  int64_t last_number_ = 0;                    // of a creation or a revocation
  absl::Time changed_ = absl::InfinitePast();  // when something was taken in, as far as believed
  absl::Time leapt_ = absl::InfiniteFuture();  // since when the clock is far ahead of `changed_`
  std::map<std::string, TokenRecord> tokens_;
  std::map<std::string, IdentityRecord> identities_;
};

}  // namespace lodestar::authority
