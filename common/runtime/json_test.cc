// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/json.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/testing/status_matchers.h"

namespace lodestar {
namespace {

using ::testing::HasSubstr;

TEST(JsonTest, KeepsOrderAndExactIntegers) {
  const std::string text = R"({"z":9007199254740993,"a":[true,null,-1.5,"\u00e9"]})";
  ASSERT_OK_AND_ASSIGN(const Json json, ParseJson(text));
  EXPECT_THAT(GetInt64(json, "z"), IsOkAndHolds(9007199254740993));
  EXPECT_EQ(FormatJson(json), "{\"z\":9007199254740993,\"a\":[true,null,-1.5,\"\xc3\xa9\"]}");
}

TEST(JsonTest, GettersNameKeyAndType) {
  ASSERT_OK_AND_ASSIGN(const Json json,
                       ParseJson(R"({"n":3,"f":0.5,"s":"x","b":true,"a":[1],"o":{"k":1},
                                     "big":18446744073709551615,"whole":3.0})"));
  EXPECT_THAT(GetDouble(json, "n"), IsOkAndHolds(3.0));
  EXPECT_THAT(GetDouble(json, "f"), IsOkAndHolds(0.5));
  EXPECT_THAT(GetString(json, "s"), IsOkAndHolds("x"));
  EXPECT_THAT(GetBool(json, "b"), IsOkAndHolds(true));
  EXPECT_EQ((*GetArray(json, "a"))->size(), 1);
  EXPECT_THAT(GetInt64(**GetObject(json, "o"), "k"), IsOkAndHolds(1));

  const auto error = [](const auto& result) { return std::string(result.status().message()); };
  EXPECT_THAT(GetUint64(json, "big"), IsOkAndHolds(18446744073709551615u));
  EXPECT_THAT(error(GetUint64(json, "s")), HasSubstr("expected non-negative integer"));
  EXPECT_EQ(error(GetInt64(json, "missing")), "key 'missing' is missing");
  EXPECT_EQ(error(GetInt64(json, "s")), "key 's' is of type string, expected integer");
  EXPECT_THAT(error(GetInt64(json, "whole")), HasSubstr("expected integer"));
  EXPECT_THAT(error(GetInt64(json, "big")), HasSubstr("18446744073709551615"));
  EXPECT_THAT(error(GetString(json, "n")), HasSubstr("expected string"));
  EXPECT_THAT(error(GetBool(json, "n")), HasSubstr("expected boolean"));
  EXPECT_THAT(error(GetArray(json, "o")), HasSubstr("expected array"));
  EXPECT_THAT(error(GetObject(json, "a")), HasSubstr("expected object"));
  EXPECT_THAT(error(GetInt64(Json::array(), "n")), HasSubstr("array"));
}

TEST(JsonTest, ErrorsNameTheByte) {
  EXPECT_THAT(ParseJson(R"({"a":1,)"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at byte 8")));
  for (const char* text : {"", "{", "[1,]", "{}x", "01", "nan", "'a'", "{\"a\":1 \"b\":2}",
                           "\"\xff\"", "// c\n1", "1e999"}) {
    EXPECT_THAT(ParseJson(text), StatusIs(absl::StatusCode::kInvalidArgument)) << text;
  }
}

TEST(JsonTest, RefusesRepeatedKeys) {
  EXPECT_THAT(ParseJson(R"({"o":{"k":1,"x":2,"k":3}})"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'k' twice")));
  EXPECT_OK(ParseJson(R"({"k":{"k":1},"l":[{"k":1},{"k":2}]})"));
}

// If the time grew with the square of the number of keys, this test would take an hour.
TEST(JsonTest, ReadsObjectsOfManyKeys) {
  constexpr int kKeys = 500'000;
  std::string text = "{";
  for (int i = 0; i < kKeys; ++i) absl::StrAppend(&text, i == 0 ? "" : ",", "\"", i, "\":", i);
  text += "}";
  ASSERT_OK_AND_ASSIGN(const Json json, ParseJson(text));
  EXPECT_EQ(json.size(), kKeys);
  EXPECT_EQ(FormatJson(json), text);
}

TEST(JsonTest, ErrorsShowLittleOfALongKeyAndNoControls) {
  const std::string key = std::string("\\u001b[2J") + std::string(1'000'000, 'x');
  const auto twice = ParseJson(absl::StrCat("{\"", key, "\":1,\"", key, "\":2}"));
  const auto cut = ParseJson(absl::StrCat("{\"", key, "\"1}"));
  for (const absl::Status& status : {twice.status(), cut.status()}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_LT(status.message().size(), 1000);
    EXPECT_EQ(status.message().find('\x1b'), absl::string_view::npos);
  }
}

TEST(JsonTest, KeepsItsLimits) {
  const std::string deep = std::string(5, '[') + std::string(5, ']');
  EXPECT_OK(ParseJson(deep, {.max_depth = 5}));
  EXPECT_THAT(ParseJson(deep, {.max_depth = 4}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("allowed are 4 levels")));
  EXPECT_OK(ParseJson(R"({"k[[[[[\"[[[[[":"[[[[[\\"})", {.max_depth = 1}));
  EXPECT_THAT(ParseJson(std::string(2'000'000, '[')), StatusIs(absl::StatusCode::kInvalidArgument));
  const std::string very_deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  EXPECT_THAT(ParseJson(very_deep), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ParseJson("[1,2]", {.max_bytes = 4}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("5 bytes")));
}

TEST(JsonTest, AnErrorIsTextWhateverItQuotes) {
  EXPECT_THAT(ParseJson("{\"f\xef\": 1}"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("last read: '\"f\\xef")));
}

TEST(JsonTest, FormatsWhatIsNotUtf8) { EXPECT_EQ(FormatJson(Json("a\xff")), "\"a\xef\xbf\xbd\""); }

}  // namespace
}  // namespace lodestar
