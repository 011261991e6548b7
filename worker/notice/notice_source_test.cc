// SPDX-License-Identifier: Apache-2.0

#include "worker/notice/notice_source.h"

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/testing/simulated_file_system.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/notice/file_notice.h"
#include "worker/notice/notice_source_factory.h"

namespace lodestar::notice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kAction[] = "GET 169.254.169.254/latest/meta-data/spot/instance-action";
constexpr char kToken[] = "PUT 169.254.169.254/latest/api/token";

// Fixture with a source of notices that gets prepared answers. asked_ has the source's requests.
class NoticeSourceTest : public testing::Test {
 protected:
  void Make(const std::string& origin) {
    source_ = MakeNoticeSource(*ParseNoticeOrigin("notice", origin), [this](const HttpRequest& r) {
      asked_.push_back(absl::StrCat(r.method, " ", r.host, r.path));
      for (const auto& [name, value] : r.headers) headers_.push_back(name + ": " + value);
      host_name_ = r.host_name;
      if (answers_.empty()) return absl::StatusOr<FetchedAnswer>(absl::UnavailableError("away"));
      const FetchedAnswer answer = answers_.front();
      answers_.pop_front();
      return absl::StatusOr<FetchedAnswer>(answer);
    });
  }
  // Returns the notice, "none", or "error: " with the text of the error.
  std::string Look(std::deque<FetchedAnswer> answers) {
    answers_ = std::move(answers);
    asked_.clear();
    headers_.clear();
    const absl::StatusOr<std::optional<std::string>> notice = source_->Look();
    EXPECT_THAT(answers_, IsEmpty());
    if (!notice.ok()) return absl::StrCat("error: ", notice.status().message());
    return notice->value_or("none");
  }

  std::unique_ptr<NoticeSource> source_;
  std::deque<FetchedAnswer> answers_;
  std::vector<std::string> asked_;
  std::vector<std::string> headers_;
  std::string host_name_;
};

TEST_F(NoticeSourceTest, AFileIsANoticeOnceItIsThere) {
  SimulatedFileSystem files;
  FileNotice source("/run/going", &files);
  EXPECT_THAT(source.Look(), StatusIs(absl::StatusCode::kNotFound,
                                      HasSubstr("the folder /run of /run/going does not exist")));
  ASSERT_OK(files.CreateDirectories("/run"));
  EXPECT_EQ(*source.Look(), std::nullopt);
  ASSERT_OK(files.CreateDirectories("/run/going"));
  EXPECT_EQ(*source.Look(), "notice: /run/going exists");
}

TEST_F(NoticeSourceTest, AnAddressIsANoticeOnceItAnswers200) {
  Make("http://example.com:8080/going");
  EXPECT_EQ(Look({{404, "no"}}), "none");
  EXPECT_THAT(asked_, ElementsAre("GET example.com/going"));
  EXPECT_EQ(Look({{204, ""}}), "none");
  EXPECT_THAT(Look({{302, ""}}), HasSubstr("error: the source answers 302"));
  EXPECT_THAT(Look({{500, ""}}), HasSubstr("error: the source answers 500"));
  EXPECT_EQ(Look({}), "error: away");
  EXPECT_EQ(Look({{200, ""}}), "notice: http://example.com:8080/going exists");
}

TEST_F(NoticeSourceTest, Ec2IsAskedWithATokenThatIsTakenOnce) {
  Make("aws");
  EXPECT_EQ(Look({{200, "tok=="}, {404, ""}}), "none");
  EXPECT_THAT(asked_, ElementsAre(kToken, kAction));
  EXPECT_THAT(headers_, ElementsAre("X-aws-ec2-metadata-token-ttl-seconds: 21600",
                                    "X-aws-ec2-metadata-token: tok=="));
  EXPECT_EQ(Look({{404, ""}}), "none");
  EXPECT_THAT(headers_, ElementsAre("X-aws-ec2-metadata-token: tok=="));
  EXPECT_EQ(Look({{200, R"({"action": "terminate", "time": "2017-09-18T08:22:00Z"})"}}),
            "EC2 gives notice of the action 'terminate' for this spot machine");
  EXPECT_EQ(Look({{200, "?"}}),
            "EC2 gives notice of the action 'interruption' for this spot machine");
}

TEST_F(NoticeSourceTest, Ec2sTokenIsTakenAnewWhenItIsOver) {
  Make("aws");
  EXPECT_EQ(Look({{200, "one"}, {404, ""}}), "none");
  EXPECT_EQ(Look({{401, ""}, {200, "two"}, {404, ""}}), "none");
  EXPECT_THAT(asked_, ElementsAre(kAction, kToken, kAction));
  EXPECT_EQ(headers_.back(), "X-aws-ec2-metadata-token: two");
  EXPECT_THAT(Look({{401, ""}, {200, "three"}, {401, ""}}),
              HasSubstr("error: the source answers 401"));
  EXPECT_EQ(Look({{200, "four"}, {404, ""}}), "none");
}

TEST_F(NoticeSourceTest, WhatIsNoTokenIsNoPartOfARequest) {
  Make("aws");
  for (const std::string& token :
       {std::string("a\r\nHost: b"), std::string("a b"), std::string(), std::string(2000, 'x')}) {
    EXPECT_THAT(Look({{200, token}}), HasSubstr("error: the source answers 200")) << token;
  }
  EXPECT_THAT(Look({{403, "t"}}), HasSubstr("error: the source answers 403"));
  EXPECT_THAT(asked_, ElementsAre(kToken));
}

TEST_F(NoticeSourceTest, ComputeEngineSaysTrueOrFalse) {
  Make("gcp");
  EXPECT_EQ(Look({{200, "FALSE"}}), "none");
  EXPECT_THAT(asked_, ElementsAre("GET 169.254.169.254/computeMetadata/v1/instance/preempted"));
  EXPECT_THAT(headers_, ElementsAre("Metadata-Flavor: Google"));
  EXPECT_EQ(host_name_, "metadata.google.internal");
  EXPECT_EQ(Look({{200, "TRUE\n"}}), "Compute Engine gives notice that this machine is preempted");
  EXPECT_THAT(Look({{200, "<html>"}}), HasSubstr("error: the source answers 200 '<html>'"));
  EXPECT_THAT(Look({{403, "TRUE"}}), HasSubstr("error: the source answers 403"));
}

std::string Event(const std::string& type, const std::string& resource) {
  return absl::StrCat(R"({"EventId": "f", "EventType": ")", type,
                      R"(", "ResourceType": "VirtualMachine", "Resources": ["other", ")", resource,
                      R"("], "EventStatus": "Scheduled", "NotBefore": ""})");
}

std::string Events(const std::string& events) {
  return absl::StrCat(R"({"DocumentIncarnation": 1, "Events": [)", events, "]}");
}

TEST_F(NoticeSourceTest, AzureTellsOfEventsAndThoseThatEndThisMachineAreNotices) {
  Make("azure");
  EXPECT_EQ(Look({{200, "box_3\n"}, {200, Events("")}}), "none");
  EXPECT_THAT(asked_,
              ElementsAre("GET 169.254.169.254/metadata/instance/compute/name?"
                          "api-version=2021-02-01&format=text",
                          "GET 169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"));
  EXPECT_THAT(headers_, ElementsAre("Metadata: true", "Metadata: true"));
  EXPECT_EQ(Look({{200, Events(Event("Freeze", "box_3"))}}), "none");
  EXPECT_EQ(Look({{200, Events(Event("Preempt", "box_4"))}}), "none") << "of another machine";
  for (const std::string type : {"Preempt", "Terminate", "Redeploy", "Reboot"}) {
    EXPECT_EQ(Look({{200, Events(Event("Freeze", "box_3") + "," + Event(type, "Box_3"))}}),
              absl::StrCat("Azure gives notice of the event '", type, "' for this machine"));
  }
}

TEST_F(NoticeSourceTest, WhatAzureDoesNotSayIsTrouble) {
  Make("azure");
  EXPECT_THAT(Look({{200, " "}}),
              HasSubstr("error: Azure's metadata service does not give this machine's name"));
  EXPECT_THAT(Look({{404, ""}}), HasSubstr("error: the source answers 404"));
  EXPECT_THAT(Look({{200, "a"}, {429, ""}}), HasSubstr("error: the source answers 429"));
  EXPECT_THAT(Look({{200, "{"}}), HasSubstr("error"));
  EXPECT_THAT(Look({{200, "{}"}}), HasSubstr("error"));
  EXPECT_THAT(Look({{200, R"({"Events": [3]})"}}), HasSubstr("error"));
  EXPECT_THAT(Look({{200, std::string(60000, '[')}}), HasSubstr("error"));
}

TEST(NoticeOriginTest, IsAPresetAFileOrAnAddress) {
  EXPECT_EQ(UsualGrace(*ParseNoticeOrigin("notice", "aws")), absl::Minutes(2));
  EXPECT_EQ(UsualGrace(*ParseNoticeOrigin("notice", "gcp")), absl::Seconds(30));
  EXPECT_EQ(UsualGrace(*ParseNoticeOrigin("notice", "azure")), absl::Seconds(30));
  EXPECT_EQ(ParseNoticeOrigin("notice", "file:/run/x")->path, "/run/x");
  EXPECT_EQ(ParseNoticeOrigin("notice", "http://a:1/x")->request.port, 1);
  for (const char* bad : {"", "ec2", "file:", "/run/x", "https://a/"}) {
    EXPECT_THAT(ParseNoticeOrigin("notice", bad),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("gcp, azure, file:PATH")))
        << bad;
  }
}

}  // namespace
}  // namespace lodestar::notice
