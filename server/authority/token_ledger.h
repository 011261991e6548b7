// SPDX-License-Identifier: Apache-2.0

// TokenLedger records the machines that may join a cluster, and those that have joined: tokens and
// the identities that came from them. It does no I/O. Times are those of the wall clock, because
// other processes read the ledger later.
//
// A token is known by the hash of its secret. It has a role, an end, and perhaps a name or a
// maximum number of uses. An identity's name is unique among the identities whose certificate is
// valid. A token with exactly that name replaces the machine of its role that has the name. After a
// name was revoked, only tokens that are younger than the revocation let a machine in under that
// name. Numbers decide which of the two is younger, because clocks may be set back. Some identities
// are issued without a token, to servers that share the authority's folder and to the folder's
// user. No other machine gets the name of such an identity.
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
  // revoked after the token was made); InvalidArgument (names); AlreadyExists (the name has a valid
  // certificate).
  absl::StatusOr<Redeemed> Redeem(const Enrolment& enrolment, absl::Time now);

  // Returns the identity of a client that shows the token itself, because it can show no
  // certificate. The identity has the token's role, and the token's name or a name made from its
  // id. This is no enrolment, and does not count as a use. Errors: those of Redeem() about the
  // token; PermissionDenied (the token has a maximum number of uses, which could not be counted).
  absl::StatusOr<security::Identity> IdentityByToken(absl::string_view token_id,
                                                     absl::string_view secret,
                                                     absl::Time now) const;

  // Records a certificate that is issued without a token, on the authority's machine. Errors:
  // PermissionDenied (the identity is revoked).
  absl::Status Note(const security::Identity& identity, absl::Time until, absl::Time now);
  // Records another certificate for the machine that has the identity. Errors: those of Note();
  // PermissionDenied (its last certificate has ended, so another machine may have its name now);
  // AlreadyExists (the ledger does not know the identity, and another machine has the name).
  absl::Status Extend(const security::Identity& identity, absl::Time until, absl::Time now);

  // Revokes a token. Errors: NotFound.
  absl::Status RevokeToken(absl::string_view id);

  struct Revocation {
    int num_identities = 0;  // number of identities that were not revoked before
    // IDs of the tokens with which the revoked identities had enrolled. ended_tokens were revoked
    // together with the identities. open_tokens stay valid for other names. open_tokens also has
    // tokens that are bound to no name and were made after the previous revocation of this name. A
    // machine may have enrolled under the name again with such a token.
    std::vector<std::string> ended_tokens;
    std::vector<std::string> open_tokens;
  };
  // Revokes all identities with the name, as of now, even those that are revoked already. Also
  // revokes each token with which they had enrolled, if `with_tokens` is true or if no other
  // machine has enrolled with that token. Errors: NotFound.
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
  // Drops tokens and identities that have ended and are no longer shown.
  void Forget(absl::Time now);
  // Records the time of a change. Returns false if the clock may be ahead. It may be ahead if it
  // has leapt by more than kMemory, and less than kLeapDoubt has passed since.
  bool IsPlausible(absl::Time now);
  // Returns the token if it is valid. Errors: PermissionDenied (no such token, wrong secret,
  // revoked, or ended).
  absl::StatusOr<const TokenRecord*> FindValid(absl::string_view token_id, absl::string_view secret,
                                               absl::Time now) const;
  // Checks that no machine has the name, or a name that conflicts with it. If `replaced_role` is
  // set, a machine of that role may have exactly this name. Errors: AlreadyExists.
  absl::Status CheckFree(absl::string_view name, std::optional<security::Role> replaced_role,
                         absl::Time now) const;
  // Checks that the name was not revoked after the token was made. Errors: PermissionDenied.
  absl::Status CheckNotShutOut(absl::string_view name, const TokenRecord& token) const;
  // Gives numbers, in the order of their times, to tokens and revocations that were written without
  // numbers.
  void NumberByTime();
  // Takes the name from the identities that have it, for another machine. Returns the ids of these
  // identities.
  std::vector<std::string> Replace(absl::string_view name, absl::Time now);

  int64_t last_number_ = 0;                    // number of the last creation or revocation
  absl::Time changed_ = absl::InfinitePast();  // time of the last change, if it was plausible
  absl::Time leapt_ = absl::InfiniteFuture();  // since when the clock is far ahead of changed_
  std::map<std::string, TokenRecord> tokens_;
  std::map<std::string, IdentityRecord> identities_;
};

}  // namespace lodestar::authority
