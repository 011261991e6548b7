// SPDX-License-Identifier: Apache-2.0

#include "server/page_access.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"

namespace lodestar::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const security::Identity kViewer{security::Role::kViewer, "vera", "1"};
const security::Identity kOperator{security::Role::kOperator, "otto", "2"};

class PageAccessTest : public ::testing::Test {
 protected:
  PageAccessTest() {
    deps_.check = [](const security::Identity& caller, absl::string_view method) {
      if (caller.name == "gone") return absl::UnauthenticatedError("was revoked");
      if (caller.role == security::Role::kOperator ||
          (caller.role == security::Role::kViewer && absl::StrContains(method, "StatusService"))) {
        return absl::OkStatus();
      }
      return absl::PermissionDeniedError("no");
    };
    deps_.may_order = [](const security::Identity& caller) {
      return caller.role == security::Role::kOperator;
    };
    deps_.identity_by_token = [](absl::string_view id,
                                 absl::string_view secret) -> absl::StatusOr<security::Identity> {
      if (id == "ab" && secret == "cd") return kViewer;
      return absl::PermissionDeniedError("not known");
    };
    deps_.on_wrong_token = [this](const std::string& address, const absl::Status&) {
      wrong_.push_back(address);
    };
  }

  absl::StatusOr<std::string> Judge(const http::HttpCredentials& shown,
                                    http::HttpDeed deed = http::HttpDeed::kLook) const {
    absl::StatusOr<http::HttpCaller> caller = PageAccess(deps_).Judge(shown, deed);
    if (!caller.ok()) return caller.status();
    return caller->text;
  }
  bool MayOrder(const http::HttpCredentials& shown) const {
    return PageAccess(deps_)
        .Judge(shown, http::HttpDeed::kLook)
        .value_or(http::HttpCaller())
        .may_order;
  }

  PageAccess::Deps deps_;
  std::vector<std::string> wrong_;
};

TEST_F(PageAccessTest, WhoHasACertificateMayWhatItsRoleMay) {
  EXPECT_EQ(Judge({.certificate = kViewer}).value_or(""), "viewer vera");
  EXPECT_EQ(Judge({.certificate = kOperator}, http::HttpDeed::kOrder).value_or(""),
            "operator otto");
  EXPECT_THAT(Judge({.certificate = kViewer}, http::HttpDeed::kOrder).status(),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("may not give orders")));
  EXPECT_THAT(
      Judge({.certificate = security::Identity{security::Role::kWorker, "w", "3"}}).status(),
      StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("may not see this page")));
  EXPECT_THAT(
      Judge({.certificate = security::Identity{security::Role::kOperator, "gone", "4"}}).status(),
      StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("was revoked")));
}

TEST_F(PageAccessTest, SaysWhetherOneThatLooksMayOrder) {
  EXPECT_TRUE(MayOrder({.certificate = kOperator}));
  EXPECT_FALSE(MayOrder({.certificate = kViewer}));
  EXPECT_FALSE(MayOrder({.certificate = kOperator, .token = "ab.cd"}));
}

TEST_F(PageAccessTest, ATokenOrAJoinStringStandsForACertificate) {
  EXPECT_EQ(Judge({.token = "ab.cd"}).value_or(""), "viewer vera");
  const std::string join = absl::StrCat("lodestar://host:1/L1", std::string(64, '0'), ".ab.cd\n");
  EXPECT_EQ(Judge({.token = join}).value_or(""), "viewer vera");
  // The token belongs to a viewer, and takes precedence over the operator's certificate.
  EXPECT_FALSE(Judge({.certificate = kOperator, .token = "ab.cd"}, http::HttpDeed::kOrder).ok());
  EXPECT_TRUE(wrong_.empty());
}

TEST_F(PageAccessTest, AWrongTokenIsAskedForAgainAndReported) {
  for (const char* token : {"ab.ce", "ab", ".", "ab.cd.", "lodestar://x"}) {
    EXPECT_THAT(Judge({.certificate = kOperator, .token = token, .address = "10.0.0.1"}).status(),
                StatusIs(absl::StatusCode::kUnauthenticated))
        << token;
  }
  EXPECT_EQ(wrong_.size(), 5u);
  EXPECT_EQ(wrong_.front(), "10.0.0.1");
}

TEST_F(PageAccessTest, WhoShowsNothingIsToldWhatWouldDo) {
  EXPECT_THAT(Judge({}).status(),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("psctl token create")));
  deps_.identity_by_token = nullptr;
  EXPECT_THAT(Judge({}).status(), StatusIs(absl::StatusCode::kUnauthenticated,
                                           ::testing::Not(HasSubstr("psctl token create"))));
  EXPECT_THAT(Judge({.token = "ab.cd"}).status(),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("no tokens")));
}

}  // namespace
}  // namespace lodestar::server
