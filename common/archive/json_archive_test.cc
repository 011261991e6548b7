// SPDX-License-Identifier: Apache-2.0

#include "common/archive/json_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "common/archive/forms.h"
#include "common/runtime/ids.h"
#include "common/runtime/json.h"
#include "common/testing/status_matchers.h"

namespace lodestar::archive {

enum class Fruit : uint8_t { kApple = 0, kPear = 1 };

struct Point {
  int x = 0;
  int y = 0;
  friend bool operator==(const Point&, const Point&) = default;
};

template <typename Archive>
void Describe(Archive& archive, Point& point) {
  archive("x", point.x);
  archive("y", point.y);
}

struct Everything {
  bool flag = false;
  uint8_t small = 0;
  uint64_t large = 0;
  float single = 0.0f;
  double number = 0.0;
  Fruit fruit = Fruit::kApple;
  std::string text = {};
  Round round = {};
  absl::Duration duration = {};
  absl::Time time = absl::UnixEpoch();
  std::optional<Point> point = {};
  std::vector<Point> points = {};
  std::map<std::string, Point> named = {};
  std::tuple<Round, int> pair = {};
  friend bool operator==(const Everything&, const Everything&) = default;
};

template <typename Archive>
void Describe(Archive& archive, Everything& all) {
  archive("flag", all.flag);
  archive("small", all.small);
  archive("large", all.large);
  archive("single", all.single);
  archive("number", all.number);
  archive("fruit", all.fruit);
  archive("text", all.text);
  archive("round", all.round);
  archive("duration", all.duration);
  archive("time", all.time);
  archive("point", all.point);
  archive("points", all.points);
  archive("named", all.named);
  archive("pair", all.pair);
}

namespace {

using ::testing::HasSubstr;

constexpr NamedKind<Fruit> kFruitNames[] = {{Fruit::kApple, "apple"}, {Fruit::kPear, "pear"}};
using FruitName = NameForm<kFruitNames>;

// Stores a point as [x, y].
struct RowForm {
  static std::tuple<int, int> Store(const Point& point) { return {point.x, point.y}; }
  static absl::Status Load(const std::tuple<int, int>& row, Point& point) {
    std::tie(point.x, point.y) = row;
    return absl::OkStatus();
  }
};

// Stores only x of a point.
struct LineForm {
  template <typename Archive>
  static void Fields(Archive& archive, Point& point) {
    archive("x", point.x);
  }
};

struct Forms {
  uint64_t id = 0;
  double loss = 0.0;
  float scale = 0.0f;
  Fruit fruit = Fruit::kApple;
  std::optional<double> accuracy;
  absl::Duration ttl;
  absl::Time created = absl::UnixEpoch();
  bool is_gone = false;
  std::vector<Point> rows;
  std::optional<Point> line;
  std::vector<uint64_t> terms;
  Point flat;
};

template <typename Archive>
void Describe(Archive& archive, Forms& formed) {
  archive("id", As<HexForm>(formed.id));
  archive("loss", As<BitsForm>(formed.loss));
  archive("scale", As<BitsForm>(formed.scale));
  archive("fruit", As<FruitName>(formed.fruit));
  archive("accuracy", As<FiniteForm>(formed.accuracy));
  archive("ttl_ms", As<MillisecondsForm>(formed.ttl));
  archive("created_ms", As<MillisecondsForm>(formed.created));
  archive.Flag("gone", formed.is_gone);
  archive("rows", As<RowForm>(formed.rows));
  archive.Sparse("line", As<LineForm>(formed.line));
  archive("terms", As<HexForm>(formed.terms));
  Describe(archive, formed.flat);
}

struct Versions {
  int note = 0;
  std::optional<int> clip = {};
  int always = 7;
  int sparse = 0;
  std::optional<int> old = {};
  std::string lease = {};
  int64_t revision = 0;
  bool has_old = false;
};

template <typename Archive>
void Describe(Archive& archive, Versions& versions) {
  archive.Optional("always", versions.always);
  archive.Note("note", versions.note);
  archive.Sparse("clip", versions.clip);
  archive.Sparse("sparse", versions.sparse, 3);
  versions.has_old = archive.Legacy("old", versions.old);
  if (archive.Has("revision", versions.revision > 0)) {
    archive("lease", versions.lease);
    archive("revision", versions.revision);
  }
}

Everything Example() {
  return {.flag = true,
          .small = 255,
          .large = std::numeric_limits<uint64_t>::max(),
          .single = 0.1f,
          .number = -std::numeric_limits<double>::infinity(),
          .fruit = Fruit::kPear,
          .text = "\n",
          .round = Round(-1),
          .duration = absl::Nanoseconds(5),
          .time = absl::FromUnixSeconds(20),
          .point = Point{1, 2},
          .points = {{3, 4}, {5, 6}},
          .named = {{"a", {7, 8}}},
          .pair = {Round(9), 10}};
}

TEST(JsonArchiveTest, ReadsBackWhatItWrites) {
  const absl::Time now = absl::FromUnixSeconds(10);
  const JsonStyle style = {.now = now, .has_special_numbers = true};
  const Json json = JsonWriter(style).Write(Example());
  EXPECT_EQ(FormatJson(json),
            R"({"flag":true,"small":255,"large":18446744073709551615,"single":0.10000000149011612,)"
            R"("number":"-inf","fruit":1,"text":"\n","round":-1,"duration":5,"time":10000000000,)"
            R"("point":{"x":1,"y":2},"points":[{"x":3,"y":4},{"x":5,"y":6}],)"
            R"("named":[["a",{"x":7,"y":8}]],"pair":[9,10]})");
  Everything read = {.points = {{9, 9}}, .named = {{"b", {}}}};
  ASSERT_OK(JsonReader(json, style).Read(json, read));
  EXPECT_EQ(read, Example());
}

TEST(JsonArchiveTest, NamesTheFieldThatCannotBeRead) {
  struct Case {
    const char* path;
    const char* value;
    const char* named;
  };
  for (const Case& bad : {
           Case{"/flag", "1", "flag is not true or false"},
           Case{"/small", "256", "small is not an integer from 0 to 255"},
           Case{"/small", "-1", "small is not"},
           Case{"/small", "1.0", "small is not"},
           Case{"/single", "1e39", "single is not a number of at most"},
           Case{"/number", "\"x\"", "number is not"},
           Case{"/text", "null", "text is not a string"},
           Case{"/point", "[]", "point is not an object"},
           Case{"/point/y", "\"2\"", "point.y is not"},
           Case{"/points", "{}", "points is not a list"},
           Case{"/points/1/x", "null", "points.1.x is not"},
           Case{"/named/0/1/x", "null", "named.0.1.x is not"},
           Case{"/pair", "[1]", "pair is not a list of 2"},
           Case{"/duration", "\"infinite\"", "duration is not"},
       }) {
    Json json = RecordToJson(Example());
    json["number"] = 1.5;
    json[Json::json_pointer(bad.path)] = *ParseJson(bad.value);
    Everything read;
    const absl::Status status = ReadRecord(json, read);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad.path;
    EXPECT_THAT(status.message(), HasSubstr(bad.named));
  }
  // Numbers that JSON does not have are refused if the style has no texts for them.
  Json special = RecordToJson(Example());
  special["number"] = "inf";
  Everything read;
  EXPECT_THAT(ReadRecord(special, read).message(), HasSubstr("number is not"));
  Json json = RecordToJson(Point{1, 2});
  json.erase("y");
  Point point;
  EXPECT_EQ(ReadRecord(json, point).message(), "y is not there");
  EXPECT_EQ(ReadRecord(Json::array(), point).message(), "the JSON text is not an object");
}

TEST(JsonArchiveTest, StoresFieldsInForms) {
  Forms formed = {.id = 0xbeef,
                  .loss = std::numeric_limits<double>::quiet_NaN(),
                  .scale = 1.0f,
                  .fruit = Fruit::kPear,
                  .accuracy = std::numeric_limits<double>::infinity(),
                  .ttl = absl::Seconds(2),
                  .created = absl::FromUnixSeconds(1),
                  .is_gone = true,
                  .rows = {{1, 2}, {3, 4}},
                  .line = Point{5, 0},
                  .terms = {10, 11},
                  .flat = {6, 7}};
  const Json json = RecordToJson(formed);
  EXPECT_EQ(FormatJson(json),
            R"({"id":"beef","loss":9221120237041090560,"scale":1065353216,"fruit":"pear",)"
            R"("accuracy":null,"ttl_ms":2000,"created_ms":1000,"gone":true,"rows":[[1,2],[3,4]],)"
            R"("line":{"x":5},"terms":["a","b"],"x":6,"y":7})");
  Forms read;
  ASSERT_OK(ReadRecord(json, read));
  EXPECT_TRUE(std::isnan(read.loss));
  EXPECT_TRUE(read.is_gone);
  EXPECT_EQ(read.fruit, Fruit::kPear);
  EXPECT_EQ(read.created, absl::FromUnixSeconds(1));
  EXPECT_EQ(read.rows, formed.rows);
  EXPECT_EQ(read.line, formed.line);
  EXPECT_EQ(read.terms, formed.terms);
  EXPECT_EQ(read.flat, formed.flat);
  EXPECT_EQ(FormatJson(RecordToJson(read)), FormatJson(json));

  for (const auto& [key, value] :
       {std::pair("fruit", "plum"), std::pair("id", "g"), std::pair("terms", "a")}) {
    Json bad = json;
    bad[key] = value;
    const absl::Status status = ReadRecord(bad, read);
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(status.message(), HasSubstr(key));
  }
}

TEST(JsonArchiveTest, AbsentKeysHaveTheirMeaning) {
  Versions versions = {.always = 1, .sparse = 3, .old = 5};
  EXPECT_EQ(FormatJson(RecordToJson(versions)), R"({"always":1,"note":0})");
  versions = {.clip = 6, .always = 1, .sparse = 4, .old = 5, .lease = "l", .revision = 2};
  EXPECT_EQ(FormatJson(RecordToJson(versions)),
            R"({"always":1,"note":0,"clip":6,"sparse":4,"lease":"l","revision":2})");

  Versions read = {.sparse = 8};
  ASSERT_OK(ReadRecord(Json::object(), read));
  EXPECT_EQ(read.always, 7);
  EXPECT_EQ(read.sparse, 3);
  EXPECT_FALSE(read.has_old);
  ASSERT_OK(ReadRecord(*ParseJson(R"({"old":null,"unknown":1})"), read));
  EXPECT_TRUE(read.has_old);
  EXPECT_FALSE(read.old.has_value());
  EXPECT_THAT(ReadRecord(*ParseJson(R"({"clip":null})"), read).message(), HasSubstr("clip is not"));
  EXPECT_EQ(ReadRecord(*ParseJson(R"({"revision":2})"), read).message(), "lease is not there");
}

}  // namespace
}  // namespace lodestar::archive
