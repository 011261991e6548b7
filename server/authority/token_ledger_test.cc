// SPDX-License-Identifier: Apache-2.0

#include "server/authority/token_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/substitute.h"
#include "common/security/certificates.h"
#include "common/testing/status_matchers.h"

namespace lodestar::authority {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Duration kDay = absl::Hours(24);

class TokenLedgerTest : public ::testing::Test {
 protected:
  void Create(const std::string& id, const TokenTerms& terms) {
    EXPECT_OK(ledger_.Create(terms, id, security::Sha256Hex("secret of " + id), now_));
  }
  absl::StatusOr<security::Identity> Redeem(const std::string& id, const std::string& name = "") {
    return RedeemWith(id, "secret of " + id, name);
  }
  absl::StatusOr<security::Identity> RedeemWith(const std::string& id, const std::string& secret,
                                                const std::string& name = "") {
    const absl::StatusOr<TokenLedger::Redeemed> redeemed =
        ledger_.Redeem({.token_id = id,
                        .secret = secret,
                        .name = name,
                        .fallback_name = "box",
                        .roles = {},
                        .identity_id = "abcdef" + std::to_string(next_id_++),
                        .until = now_ + kDay},
                       now_);
    if (!redeemed.ok()) return redeemed.status();
    replaced_ids_ = redeemed->replaced_ids;
    return redeemed->identity;
  }
  static auto Refused(const std::string& text) {
    return StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr(text));
  }

  TokenLedger ledger_;
  absl::Time now_ = absl::FromUnixSeconds(1'800'000'000);
  int next_id_ = 1;
  std::vector<std::string> replaced_ids_;  // from the last Redeem()
};

TEST_F(TokenLedgerTest, WhatATokenMayNotBeNamesTheFlag) {
  const auto refused = [this](const TokenTerms& terms, const std::string& text) {
    EXPECT_THAT(ledger_.Create(terms, "t", security::Sha256Hex("s"), now_),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  refused({.ttl = absl::Milliseconds(1)}, "a token's lifetime (--ttl) is 1ms; allowed is 1s to ");
  refused({.ttl = kDay, .max_uses = -1}, "a token's number of uses (--uses) is -1");
  refused({.ttl = kDay, .name = "a b"}, "--name: the name has 3 bytes");
  refused({.ttl = kDay, .name = "server-0"}, "--name: the name 'server-0' is reserved for");
}

TEST_F(TokenLedgerTest, ATokenLetsInUnderANameOfItsOwnOrTheMachines) {
  Create("t", {.role = security::Role::kWorker, .ttl = kDay});
  const auto named = Redeem("t", "w0");
  ASSERT_OK(named);
  EXPECT_EQ(*named, (security::Identity{security::Role::kWorker, "w0", "abcdef1"}));
  const auto unnamed = Redeem("t");
  ASSERT_OK(unnamed);
  EXPECT_EQ(unnamed->name, "box-abcdef");
  EXPECT_EQ(ledger_.tokens().at("t").uses, 2);
  EXPECT_EQ(ledger_.identities().at("abcdef1").token_id, "t");
}

TEST_F(TokenLedgerTest, AWrongSecretAndAnUnknownTokenAreToldTheSame) {
  Create("t", {.ttl = kDay});
  const absl::Status wrong = RedeemWith("t", "secret of x").status();
  EXPECT_THAT(wrong, Refused("does not know the token"));
  EXPECT_EQ(RedeemWith("x", "secret of x").status(), wrong);
  EXPECT_EQ(RedeemWith("t", "").status(), wrong);
  EXPECT_EQ(ledger_.tokens().at("t").uses, 0);
}

TEST_F(TokenLedgerTest, TimeAndUsesEndAToken) {
  Create("once", {.ttl = kDay, .max_uses = 1});
  EXPECT_OK(Redeem("once"));
  EXPECT_THAT(Redeem("once"), Refused("used once, its maximum (--uses=1)"));
  Create("twice", {.ttl = kDay, .max_uses = 2});
  EXPECT_OK(Redeem("twice", "w1"));
  EXPECT_OK(Redeem("twice", "w2"));
  EXPECT_THAT(Redeem("twice", "w3"), Refused("used 2 times"));
  Create("day", {.ttl = kDay});
  now_ += kDay;
  EXPECT_THAT(Redeem("day"), Refused("expired at 2027-01-16"));
}

TEST_F(TokenLedgerTest, ATokenThatIsShownSaysWhoItIsAndCountsNoUse) {
  Create("t", {.role = security::Role::kViewer, .ttl = kDay});
  Create("named", {.role = security::Role::kOperator, .ttl = kDay, .name = "alice"});
  Create("once", {.ttl = kDay, .max_uses = 1});
  const auto shown = [this](const std::string& id) {
    return ledger_.IdentityByToken(id, "secret of " + id, now_);
  };
  EXPECT_EQ(shown("t").value_or(security::Identity()),
            (security::Identity{security::Role::kViewer, "token-t", "token-t"}));
  EXPECT_EQ(shown("named").value_or(security::Identity()),
            (security::Identity{security::Role::kOperator, "alice", "token-named"}));
  EXPECT_EQ(ledger_.tokens().at("t").uses, 0);
  EXPECT_THAT(shown("once"), Refused("without --uses"));
  EXPECT_THAT(shown("x"), Refused("does not know the token"));
  EXPECT_THAT(ledger_.IdentityByToken("t", "secret of x", now_), Refused("not know"));
  EXPECT_OK(ledger_.RevokeToken("t"));
  EXPECT_THAT(shown("t"), Refused("was revoked"));
  now_ += kDay;
  EXPECT_THAT(shown("named"), Refused("expired at"));
}

TEST_F(TokenLedgerTest, ATokenOfANameThatWasRevokedIsShownInVain) {
  Create("t", {.role = security::Role::kOperator, .ttl = kDay, .name = "alice"});
  EXPECT_OK(Redeem("t"));
  Create("other", {.role = security::Role::kOperator, .ttl = kDay, .name = "alice"});
  Create("any", {.role = security::Role::kOperator, .ttl = kDay});
  EXPECT_OK(ledger_.Revoke("alice", "lost", false, now_));
  EXPECT_FALSE(ledger_.IdentityByToken("t", "secret of t", now_).ok());
  EXPECT_THAT(ledger_.IdentityByToken("other", "secret of other", now_), Refused("is older"));
  EXPECT_OK(ledger_.IdentityByToken("any", "secret of any", now_));
}

TEST_F(TokenLedgerTest, ATokenForAnotherRoleIsNotUsed) {
  Create("t", {.role = security::Role::kViewer, .ttl = kDay, .max_uses = 1});
  TokenLedger::Enrolment enrolment;
  enrolment.token_id = "t";
  enrolment.secret = "secret of t";
  enrolment.name = "w0";
  enrolment.identity_id = "1";
  enrolment.roles = {"worker"};
  EXPECT_THAT(ledger_.Redeem(enrolment, now_),
              Refused("token t is for the role viewer, but this call needs the role worker"));
  enrolment.roles = {"operator", "viewer"};
  EXPECT_OK(ledger_.Redeem(enrolment, now_));
}

TEST_F(TokenLedgerTest, ARevokedTokenLetsNobodyIn) {
  Create("t", {.ttl = kDay});
  EXPECT_OK(Redeem("t", "w0"));
  EXPECT_OK(ledger_.RevokeToken("t"));
  EXPECT_THAT(Redeem("t", "w1"), Refused("token t was revoked"));
  EXPECT_THAT(ledger_.RevokeToken("x"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(TokenLedgerTest, ANameIsOneMachinesAsLongAsItsCertificateHolds) {
  Create("t", {.ttl = 30 * kDay});
  EXPECT_OK(Redeem("t", "w0"));
  for (const char* name : {"w0", "w0.1"}) {
    EXPECT_THAT(Redeem("t", name),
                StatusIs(absl::StatusCode::kAlreadyExists,
                         AllOf(HasSubstr("taken by worker w0"),
                               HasSubstr("psctl token create --role=worker --name=w0"))));
  }
  EXPECT_OK(Redeem("t", "w0-1"));
  now_ += kDay;
  EXPECT_OK(Redeem("t", "w0"));
}

TEST_F(TokenLedgerTest, ATokenForOneNameReplacesWhoHasIt) {
  Create("any", {.ttl = kDay});
  const auto old = Redeem("any", "w0");
  ASSERT_OK(old);
  Create("t", {.ttl = kDay, .name = "w0"});
  EXPECT_THAT(Redeem("t", "w1"),
              Refused("is for the name 'w0', but this machine asks for the name 'w1'"));
  const auto replaced = Redeem("t");
  ASSERT_OK(replaced);
  EXPECT_EQ(replaced->name, "w0");
  EXPECT_THAT(replaced_ids_, ElementsAre(old->id));
  EXPECT_NE(ledger_.FindRevoked(*old), nullptr);
  EXPECT_EQ(ledger_.FindRevoked(*replaced), nullptr);
}

TEST_F(TokenLedgerTest, OnlyWhoHasTheRoleIsReplaced) {
  Create("any", {.ttl = kDay});
  Create("viewer", {.role = security::Role::kViewer, .ttl = kDay});
  EXPECT_OK(Redeem("viewer", "ann"));
  EXPECT_OK(Redeem("any", "box.1"));
  Create("ann", {.ttl = kDay, .name = "ann"});
  EXPECT_THAT(Redeem("ann"),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("taken by viewer ann")));
  Create("box", {.ttl = kDay, .name = "box"});
  EXPECT_THAT(Redeem("box"),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("taken by worker box.1")));
  EXPECT_EQ(ledger_.tokens().at("ann").uses, 0);
}

TEST_F(TokenLedgerTest, NamesOfTheServersOwnAreNobodyElses) {
  for (const char* name : {"server-1", "replica-0", "local-operator"}) {
    EXPECT_THAT(
        ledger_.Create({.role = security::Role::kServer, .ttl = kDay, .name = name}, "t", "", now_),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is reserved for programs")));
    Create("t", {.ttl = kDay});
    EXPECT_THAT(Redeem("t", name), StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

// A machine may still be connected when its certificate has ended, and may then ask for a renewal.
TEST_F(TokenLedgerTest, AnIdentityWhoseCertificateHasEndedIsNotRenewed) {
  Create("t", {.ttl = 3 * kDay});
  const auto old = Redeem("t", "w0");
  ASSERT_OK(old);
  now_ += kDay;
  EXPECT_OK(Redeem("t", "w0"));
  EXPECT_THAT(ledger_.Extend(*old, now_ + kDay, now_),
              Refused("the certificate of worker w0 expired at 2027-01-16"));
  EXPECT_OK(ledger_.Note(*old, now_ + kDay, now_)) << "where the authority is";
}

// The ledger may be an older copy that lacks identities which were issued later.
TEST_F(TokenLedgerTest, AnIdentityThatTheLedgerDoesNotKnowIsRenewedWhereItsNameIsFree) {
  Create("t", {.ttl = kDay});
  EXPECT_OK(Redeem("t", "w0"));
  EXPECT_THAT(ledger_.Extend({security::Role::kWorker, "w0", "ffff"}, now_ + kDay, now_),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("taken by worker w0")));
  EXPECT_OK(ledger_.Extend({security::Role::kWorker, "w1", "ffff"}, now_ + kDay, now_));
  EXPECT_EQ(ledger_.identities().at("ffff").identity.name, "w1");
}

TEST_F(TokenLedgerTest, ARevokedIdentityIsNotRenewed) {
  Create("t", {.ttl = kDay});
  const auto identity = Redeem("t", "w0");
  ASSERT_OK(identity);
  EXPECT_OK(ledger_.Extend(*identity, now_ + 2 * kDay, now_));
  EXPECT_EQ(ledger_.identities().at(identity->id).expires, now_ + 2 * kDay);
  const auto revoked = ledger_.Revoke("w0", "lost", false, now_);
  ASSERT_OK(revoked);
  EXPECT_EQ(revoked->num_identities, 1);
  EXPECT_EQ(ledger_.Revoke("w0", "again", false, now_)->num_identities, 0);
  EXPECT_THAT(ledger_.Note(*identity, now_ + 3 * kDay, now_), Refused("worker w0 was revoked"));
  EXPECT_THAT(ledger_.Extend(*identity, now_ + 3 * kDay, now_), Refused("worker w0 was revoked"));
  EXPECT_THAT(ledger_.Revoke("w9", "", false, now_), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(TokenLedgerTest, ARevokedNameComesBackWithAYoungerTokenOnly) {
  Create("shared", {.ttl = 30 * kDay});
  Create("bound", {.ttl = 30 * kDay, .name = "w0"});
  EXPECT_OK(Redeem("shared", "w0"));
  EXPECT_OK(Redeem("shared", "w1"));
  now_ += absl::Seconds(1);
  EXPECT_OK(ledger_.Revoke("w0", "lost", false, now_));
  for (const char* name : {"w0", "w0.1"}) {
    EXPECT_THAT(Redeem("shared", name),
                Refused("worker w0 was revoked at 2027-01-15 08:00:01 UTC (lost), and token shared "
                        "is older than that. To let the name join again, make a new join string: "
                        "psctl token create --name=" +
                        std::string(name)));
  }
  EXPECT_THAT(Redeem("bound"), Refused("token bound is older"));
  EXPECT_OK(Redeem("shared", "w2")) << "its other names are free";
  // As long as a token exists that is older than a revocation, the ledger has the revocation, even
  // after more than a week.
  now_ += 20 * kDay;
  EXPECT_THAT(Redeem("shared", "w0"), Refused("was revoked"));
  now_ += absl::Seconds(1);
  Create("new", {.ttl = kDay, .name = "w0"});
  EXPECT_OK(Redeem("new"));
  now_ += 2 * kDay;
  EXPECT_THAT(Redeem("shared", "w0"), Refused("was revoked")) << "the one that is older still";
  now_ += 5 * kDay;
  Create("between", {.ttl = kDay});
  now_ += 4 * kDay;
  Create("later", {.ttl = kDay});
  EXPECT_THAT(ledger_.identities(), SizeIs(0));
}

TEST_F(TokenLedgerTest, AMachineThatIsReplacedDoesNotShutItsNameOut) {
  Create("bound", {.ttl = kDay, .name = "w0"});
  for (int i = 0; i < 3; ++i) EXPECT_OK(Redeem("bound"));
  EXPECT_EQ(ledger_.Revoke("w0", "lost", false, now_)->num_identities, 1);
  Create("open", {.ttl = kDay});
  EXPECT_THAT(Redeem("bound"), Refused("token bound was revoked"));
}

TEST_F(TokenLedgerTest, WhichIsYoungerDoesNotGoByTheClock) {
  Create("shared", {.ttl = kDay});
  Create("other", {.ttl = kDay});
  EXPECT_OK(Redeem("shared", "w0"));
  EXPECT_OK(Redeem("shared", "w1"));
  now_ -= absl::Minutes(5);
  EXPECT_OK(ledger_.Revoke("w0", "lost", false, now_));
  EXPECT_THAT(Redeem("other", "w0"), Refused("token other is older"));
  now_ -= absl::Minutes(5);
  Create("new", {.ttl = kDay});
  const auto back = TokenLedger::FromJson(ledger_.ToJson());
  ASSERT_OK(back);
  ledger_ = *back;
  EXPECT_THAT(Redeem("other", "w0"), Refused("token other is older"));
  EXPECT_OK(Redeem("new", "w0"));
}

TEST_F(TokenLedgerTest, ANameThatIsRevokedAgainIsRevokedFromNowOn) {
  Create("first", {.ttl = 30 * kDay, .max_uses = 1});
  EXPECT_OK(Redeem("first", "w0"));
  Create("before", {.ttl = 30 * kDay});
  EXPECT_THAT(ledger_.Revoke("w0", "lost", false, now_)->open_tokens, IsEmpty());
  now_ += kDay;
  Create("between", {.ttl = 30 * kDay});
  Create("bound", {.ttl = 30 * kDay, .name = "w0"});
  Create("over", {.ttl = absl::Seconds(1)});
  now_ += kDay;
  const auto again = ledger_.Revoke("w0", "stolen", false, now_);
  ASSERT_OK(again);
  EXPECT_EQ(again->num_identities, 0);
  EXPECT_THAT(again->open_tokens, ElementsAre("between"));
  EXPECT_THAT(again->ended_tokens, IsEmpty());
  EXPECT_THAT(Redeem("between", "w0"),
              Refused("was revoked at 2027-01-17 08:00:00 UTC (stolen), and token between is "));
  EXPECT_THAT(Redeem("bound"), Refused("token bound is older"));
  EXPECT_OK(Redeem("between", "w1"));
  Create("new", {.ttl = kDay, .name = "w0"});
  EXPECT_OK(Redeem("new"));
}

TEST_F(TokenLedgerTest, ATokenGoesWithTheLastOneThatIsInThroughIt) {
  Create("shared", {.ttl = 2 * kDay});
  Create("other", {.ttl = 2 * kDay});
  for (const char* name : {"w0", "w1", "w2"}) EXPECT_OK(Redeem("shared", name));
  EXPECT_OK(Redeem("other", "w3"));
  const auto first = ledger_.Revoke("w0", "lost", false, now_);
  ASSERT_OK(first);
  EXPECT_THAT(first->open_tokens, ElementsAre("shared"));
  EXPECT_THAT(first->ended_tokens, IsEmpty());
  EXPECT_OK(ledger_.Revoke("w1", "lost", false, now_));
  const auto last = ledger_.Revoke("w2", "lost", false, now_);
  ASSERT_OK(last);
  EXPECT_THAT(last->open_tokens, IsEmpty());
  EXPECT_THAT(last->ended_tokens, ElementsAre("shared"));
  EXPECT_THAT(Redeem("shared", "w9"), Refused("token shared was revoked"));
  EXPECT_OK(Redeem("other", "w4"));
  EXPECT_THAT(ledger_.Revoke("w4", "lost", /*with_tokens=*/true, now_)->ended_tokens,
              ElementsAre("other"));
  EXPECT_THAT(Redeem("other", "w5"), Refused("token other was revoked"));
  EXPECT_EQ(ledger_.FindRevoked({security::Role::kWorker, "w3", "abcdef4"}), nullptr)
      << "who is in stays";
}

TEST_F(TokenLedgerTest, TermsAreBounded) {
  for (const TokenTerms& terms :
       {TokenTerms{.ttl = absl::ZeroDuration()}, TokenTerms{.ttl = 366 * kDay},
        TokenTerms{.ttl = kDay, .max_uses = -1}, TokenTerms{.ttl = kDay, .name = "a b"}}) {
    EXPECT_THAT(ledger_.Create(terms, "t", "", now_), StatusIs(absl::StatusCode::kInvalidArgument));
  }
  for (size_t i = 0; i < TokenLedger::kMaxTokens; ++i) Create(std::to_string(i), {.ttl = kDay});
  EXPECT_THAT(ledger_.Create({.ttl = kDay}, "more", "", now_),
              StatusIs(absl::StatusCode::kResourceExhausted));
  now_ += 5 * kDay;
  EXPECT_THAT(ledger_.Create({.ttl = kDay}, "more", "", now_),
              StatusIs(absl::StatusCode::kResourceExhausted));
  now_ += 4 * kDay;
  EXPECT_OK(ledger_.Create({.ttl = kDay}, "more", "", now_));
  EXPECT_THAT(ledger_.tokens(), SizeIs(1));
}

TEST_F(TokenLedgerTest, WhatIsWrittenDownIsReadAgain) {
  Create("t", {.role = security::Role::kOperator, .ttl = kDay, .max_uses = 3, .name = "ann"});
  Create("u", {.ttl = kDay});
  EXPECT_OK(Redeem("t"));
  EXPECT_OK(Redeem("u", "w0"));
  EXPECT_OK(ledger_.Revoke("w0", "lost", false, now_));
  EXPECT_OK(ledger_.RevokeToken("u"));
  const auto back = TokenLedger::FromJson(ledger_.ToJson());
  ASSERT_OK(back);
  EXPECT_EQ(back->tokens(), ledger_.tokens());
  EXPECT_EQ(back->identities(), ledger_.identities());
  EXPECT_EQ(ledger_.ToJson().find("secret of"), std::string::npos);
  for (const char* bad : {"", "{}", R"({"format_version":2,"tokens":[],"identities":[]})",
                          R"({"format_version":1,"last_number":-1,"tokens":[],"identities":[]})",
                          R"({"format_version":1,"tokens":[{}],"identities":[]})"}) {
    EXPECT_FALSE(TokenLedger::FromJson(bad).ok()) << bad;
  }
}

// A ledger of an earlier release: it has no numbers, and no field is_replaced.
constexpr absl::string_view kLedgerWithoutNumbers = R"({"format_version": 1,
  "tokens": [
    {"id": "old", "secret_sha256": "$0", "role": "worker", "ttl_ms": 86400000, "max_uses": 0,
     "name": "", "created_unix_ms": 1800000000000, "uses": 2, "is_revoked": false},
    {"id": "new", "secret_sha256": "$1", "role": "worker", "ttl_ms": 86400000, "max_uses": 0,
     "name": "", "created_unix_ms": 1800000001001, "uses": 0, "is_revoked": false}],
  "identities": [
    {"id": "01", "role": "worker", "name": "w0", "token_id": "old",
     "enrolled_unix_ms": 1800000000000, "expires_unix_ms": 1800086400000,
     "revoked_unix_ms": 1800000001000, "revoked_because": "by operator ann"},
    {"id": "02", "role": "worker", "name": "w1", "token_id": "old",
     "enrolled_unix_ms": 1800000000000, "expires_unix_ms": 1800086400000,
     "revoked_unix_ms": 1800000001000,
     "revoked_because": "replaced by another machine of the name"},
    {"id": "03", "role": "worker", "name": "w2", "token_id": "old",
     "enrolled_unix_ms": 1800000000000, "expires_unix_ms": 1800086400000,
     "revoked_unix_ms": 1800000000000, "revoked_because": "by operator ann"}]})";

TEST_F(TokenLedgerTest, WhatWasWrittenWithoutNumbersIsNumberedByItsTimes) {
  const auto ledger = TokenLedger::FromJson(absl::Substitute(kLedgerWithoutNumbers,
                                                             security::Sha256Hex("secret of old"),
                                                             security::Sha256Hex("secret of new")));
  ASSERT_OK(ledger);
  ledger_ = *ledger;
  EXPECT_THAT(Redeem("old", "w0"), Refused("token old is older"));
  EXPECT_THAT(Redeem("old", "w2"), Refused("token old is older")) << "of the same millisecond";
  EXPECT_OK(Redeem("new", "w0"));
  EXPECT_OK(Redeem("old", "w1")) << "who was replaced, is not shut out";
  EXPECT_OK(ledger_.Revoke("w1", "lost", false, now_));
  EXPECT_THAT(Redeem("new", "w1"), Refused("token new is older"));
  EXPECT_OK(TokenLedger::FromJson(ledger_.ToJson()));
}

}  // namespace
}  // namespace lodestar::authority
