// SPDX-License-Identifier: Apache-2.0

// TokenLedger records tokens, with which machines may join a cluster, and the identities of
// machines that have joined. It does no I/O. Times are those of the wall clock, because other
// processes read the ledger later.
//
// The ledger has the hash of a token's secret. A token has a role, an end, and perhaps a name or a
// maximum number of uses. Rules for names:
// - An identity's name is unique among the identities whose certificate is valid.
// - A machine with a token for exactly that name takes the name from the machine of the token's
//   role that has it.
// - After a name was revoked, a machine can get it only with a token that is younger than the
//   revocation. Numbers decide which of the two is younger, because clocks may be set back.
// - Servers that share the authority's folder, and the folder's user, get identities without a
//   token. No other machine can get their names.
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
  security::Role role = security::Role::kWorker;
  absl::Duration ttl;
  int64_t max_uses = 0;   // 0 means no limit
  std::string name = {};  // the only name that the token allows; empty means any free name

  friend bool operator==(const TokenTerms&, const TokenTerms&) = default;
};

struct TokenRecord {
  std::string id;
  std::string secret_sha256;
  TokenTerms terms;
  absl::Time created;
  int64_t creation = 0;  // the creation's number in the order of creations and revocations
  int64_t uses = 0;
  bool is_revoked = false;

  friend bool operator==(const TokenRecord&, const TokenRecord&) = default;

  absl::Time expires() const { return created + terms.ttl; }
  bool is_open(absl::Time now) const {
    return !is_revoked && now < expires() && (terms.max_uses == 0 || uses < terms.max_uses);
  }
};

struct IdentityRecord {
  security::Identity identity;
  std::string token_id;  // empty means issued without a token, on the authority's machine
  absl::Time enrolled;
  absl::Time expires;                           // end of its newest certificate
  absl::Time revoked = absl::InfiniteFuture();  // when it was last revoked
  int64_t revocation = 0;                       // number of the revocation; 0 means none
  std::string revoked_because = {};
  bool is_replaced = false;  // true: revoked because its name was given to another machine

  friend bool operator==(const IdentityRecord&, const IdentityRecord&) = default;

  bool is_revoked() const { return revoked != absl::InfiniteFuture(); }
};

class TokenLedger {
 public:
  static constexpr size_t kMaxTokens = 1000;
  static constexpr size_t kMaxIdentities = 100'000;
  static constexpr absl::Duration kShortestTtl = absl::Seconds(1);
  static constexpr absl::Duration kLongestTtl = absl::Hours(24 * 365);

  // Creates a token. `id` must be new. Errors: InvalidArgument (terms); ResourceExhausted (there
  // are kMaxTokens valid tokens).
  absl::Status Create(const TokenTerms& terms, const std::string& id,
                      const std::string& secret_sha256, absl::Time now);

  struct Enrolment {
    std::string token_id;
    std::string secret;
    std::string name;                // wanted name; if empty, one from the token or fallback_name
    std::string fallback_name;       // the machine's own name
    std::vector<std::string> roles;  // roles that the program can have; empty means any
    std::string identity_id;         // must be new
    absl::Time until;                // end of the certificate
  };
  struct Redeemed {
    security::Identity identity;
    std::vector<std::string> replaced_ids = {};  // identities that lost this name to the new one
  };
  // Uses a token for an enrolment, and counts the use. Errors: PermissionDenied (no such token,
  // wrong secret, the token has ended or has no uses left, wrong role or name, or the name was
  // revoked after the token was made); InvalidArgument (names); AlreadyExists (another machine has
  // a valid certificate with this name).
  absl::StatusOr<Redeemed> Redeem(const Enrolment& enrolment, absl::Time now);

  // Returns the identity of a client that has no certificate and shows a token instead. The
  // identity has the token's role and name. If the token has no name, the name is made from the
  // token's id. The call is no enrolment and does not count as a use. Errors: those of Redeem()
  // about the token; PermissionDenied (the token has a maximum number of uses, and this call could
  // not be counted).
  absl::StatusOr<security::Identity> IdentityByToken(absl::string_view token_id,
                                                     absl::string_view secret,
                                                     absl::Time now) const;

  // Records a certificate that was issued on the authority's machine, without a token. Errors:
  // PermissionDenied (the identity is revoked).
  absl::Status Note(const security::Identity& identity, absl::Time until, absl::Time now);
  // Records a further certificate for a machine that has one already. Errors: those of Note();
  // PermissionDenied (the machine's newest certificate has ended, so another machine may have its
  // name now); AlreadyExists (the ledger does not know the identity, and another machine has its
  // name).
  absl::Status Extend(const security::Identity& identity, absl::Time until, absl::Time now);

  // Revokes a token. Errors: NotFound.
  absl::Status RevokeToken(absl::string_view id);

  struct Revocation {
    int num_identities = 0;  // number of identities that were not revoked before
    // Ids of tokens with which a machine may have enrolled under the name. ended_tokens are now
    // revoked, like the identities. open_tokens are still valid, but not for this name. Besides
    // tokens of the revoked identities, open_tokens has all tokens without a name that were made
    // after the previous revocation of the name.
    std::vector<std::string> ended_tokens;
    std::vector<std::string> open_tokens;
  };
  // Revokes all identities with the name. An identity that was revoked before is revoked again, as
  // of now. Also revokes a token with which one of them had enrolled, if `with_tokens` is true or
  // if no other machine with a valid certificate has enrolled with it. Errors: NotFound.
  absl::StatusOr<Revocation> Revoke(absl::string_view name, absl::string_view because,
                                    bool with_tokens, absl::Time now);
  // Returns the record if the identity is revoked. Null means that it is not revoked, or not known.
  const IdentityRecord* FindRevoked(const security::Identity& identity) const;

  // The keys are ids.
  const std::map<std::string, TokenRecord>& tokens() const { return tokens_; }
  const std::map<std::string, IdentityRecord>& identities() const { return identities_; }

  std::string ToJson() const;
  // Parses a ledger. Errors: InvalidArgument.
  static absl::StatusOr<TokenLedger> FromJson(absl::string_view text);

 private:
  // Removes tokens and identities that ended more than kMemory ago. Keeps each revocation that is
  // younger than a valid token. Removes nothing if the clock may be wrong.
  void Forget(absl::Time now);
  // Records `now` as the time of a change. Returns false if the clock may be ahead: it has leapt by
  // more than kMemory since the last change, and less than kLeapDoubt has passed since the leap.
  bool IsPlausible(absl::Time now);
  // Returns the token if it is valid. Errors: PermissionDenied (no such token, wrong secret,
  // revoked, or ended).
  absl::StatusOr<const TokenRecord*> FindValid(absl::string_view token_id, absl::string_view secret,
                                               absl::Time now) const;
  // Checks that no machine with a valid certificate has the name, or a name that is too similar. A
  // machine of the role `replaced_role` may have exactly this name. Errors: AlreadyExists.
  absl::Status CheckFree(absl::string_view name, std::optional<security::Role> replaced_role,
                         absl::Time now) const;
  // Checks that the name was not revoked after the token was made. Errors: PermissionDenied.
  absl::Status CheckNotShutOut(absl::string_view name, const TokenRecord& token) const;
  // Gives numbers to tokens and revocations of a ledger without numbers, in the order of their
  // times.
  void NumberByTime();
  // Revokes the identities with this name, so that another machine can have the name. Returns the
  // ids of those whose certificate was still valid.
  std::vector<std::string> Replace(absl::string_view name, absl::Time now);

  int64_t last_number_ = 0;                    // number of the last creation or revocation
  absl::Time changed_ = absl::InfinitePast();  // time of the last change, if it was plausible
  absl::Time leapt_ = absl::InfiniteFuture();  // since when the clock is far ahead of changed_
  std::map<std::string, TokenRecord> tokens_;
  std::map<std::string, IdentityRecord> identities_;
};

}  // namespace lodestar::authority
