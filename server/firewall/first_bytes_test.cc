// SPDX-License-Identifier: Apache-2.0

#include "server/firewall/first_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lodestar::firewall {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(FirstBytesTest, ToldApartAsSoonAsTheyCanBe) {
  EXPECT_EQ(ClassifyFirstBytes(""), FirstBytes::kIncomplete);
  EXPECT_EQ(ClassifyFirstBytes("\x16"), FirstBytes::kIncomplete);
  EXPECT_EQ(ClassifyFirstBytes("\x16\x03"), FirstBytes::kTls);
  EXPECT_EQ(ClassifyFirstBytes("\x16\x03\x01 and more"), FirstBytes::kTls);
  EXPECT_EQ(ClassifyFirstBytes("P"), FirstBytes::kIncomplete);
  EXPECT_EQ(ClassifyFirstBytes("PR"), FirstBytes::kIncomplete);
  EXPECT_EQ(ClassifyFirstBytes("PRI"), FirstBytes::kHttp2);
  EXPECT_EQ(ClassifyFirstBytes("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), FirstBytes::kHttp2);
  EXPECT_EQ(ClassifyFirstBytes("LODESTA"), FirstBytes::kIncomplete);
  EXPECT_EQ(ClassifyFirstBytes("LODESTAR"), FirstBytes::kEnrollment);
  EXPECT_EQ(ClassifyFirstBytes("GET"), FirstBytes::kIncomplete);
  EXPECT_EQ(ClassifyFirstBytes("GET / HTTP/1.1\r\n"), FirstBytes::kHttp1);
  EXPECT_EQ(ClassifyFirstBytes("POST /x HTTP/1.1\r\n"), FirstBytes::kHttp1);
  EXPECT_EQ(ClassifyFirstBytes("DELETE /x"), FirstBytes::kHttp1);
}

TEST(FirstBytesTest, WhatIsNoneOfTheseIsKnownToBe) {
  EXPECT_EQ(ClassifyFirstBytes("SSH-2.0-OpenSSH"), FirstBytes::kOther);
  EXPECT_EQ(ClassifyFirstBytes("\x16\x04"), FirstBytes::kOther);
  EXPECT_EQ(ClassifyFirstBytes("PRI is no preface"), FirstBytes::kOther);
  EXPECT_EQ(ClassifyFirstBytes("LODESTONE"), FirstBytes::kOther);
  EXPECT_EQ(ClassifyFirstBytes("GETAWAY"), FirstBytes::kOther);
  EXPECT_EQ(ClassifyFirstBytes(absl::string_view("\0", 1)), FirstBytes::kOther);
}

TEST(FirstBytesTest, RefusalsAreOfTheProtocolOfThePeer) {
  EXPECT_THAT(Http1Refusal(), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Http1Refusal(), HasSubstr("psctl status"));
  EXPECT_EQ(TlsRefusal(TlsAlert::kProtocolVersion), std::string("\x15\x03\x01\x00\x02\x02\x46", 7));
}

}  // namespace
}  // namespace lodestar::firewall
