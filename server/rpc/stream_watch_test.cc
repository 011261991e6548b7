// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/stream_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/testing/simulated_clock.h"
#include "common/testing/status_matchers.h"

namespace lodestar::rpc {
namespace {

using ::testing::HasSubstr;

class FakeStream final : public WatchedStream {
 public:
  void EndStalled(const absl::Status& status) override { end = status; }
  void OnLook(absl::Duration awaited) override {
    silence = awaited == absl::ZeroDuration() ? awaited : silence + awaited;
  }
  using WatchedStream::AwaitPeer;
  using WatchedStream::StopAwaitingPeer;

  absl::Status end;
  absl::Duration silence;  // how long the stream has waited in the present step
};

class StreamWatchTest : public ::testing::Test {
 protected:
  std::shared_ptr<FakeStream> Watched() {
    auto stream = std::make_shared<FakeStream>();
    watch_.Add(stream);
    return stream;
  }
  // Returns how many streams are ended within this number of seconds.
  int Pass(int seconds) {
    int ended = 0;
    for (int i = 0; i < seconds; ++i) {
      clock_.AdvanceTime(absl::Seconds(1));
      ended += watch_.EndStalled(clock_.Now());
    }
    return ended;
  }

  SimulatedClock clock_;
  StreamWatch watch_{absl::Seconds(10)};
};

TEST_F(StreamWatchTest, EndsWhoseStepIsThePeersForTooLong) {
  const auto stream = Watched();
  stream->AwaitPeer();
  EXPECT_EQ(Pass(10), 0);
  EXPECT_EQ(Pass(1), 1);
  EXPECT_THAT(stream->end,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("for 10s (--message_timeout)")));
  EXPECT_EQ(watch_.size(), 0);
}

TEST_F(StreamWatchTest, WhoMovesOrWaitsForTheServerGoesOn) {
  const auto moving = Watched();
  const auto held = Watched();
  moving->AwaitPeer();
  held->AwaitPeer();
  held->StopAwaitingPeer();
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(Pass(9), 0);
    moving->AwaitPeer();  // another step of the same kind
  }
  EXPECT_OK(moving->end);
  EXPECT_OK(held->end);
}

TEST_F(StreamWatchTest, TellsStreamsHowLongTheirPeersOweTheSameStep) {
  const auto stream = Watched();
  stream->AwaitPeer();
  Pass(4);
  EXPECT_EQ(stream->silence, absl::Seconds(3)) << "since the first look";
  stream->AwaitPeer();
  Pass(1);
  EXPECT_EQ(stream->silence, absl::ZeroDuration()) << "another step";
  Pass(2);
  clock_.AdvanceTime(absl::Seconds(4));  // the server did not run
  watch_.EndStalled(clock_.Now());
  EXPECT_EQ(stream->silence, absl::Seconds(3));
  stream->StopAwaitingPeer();
  Pass(2);
  EXPECT_EQ(stream->silence, absl::ZeroDuration()) << "it is the server's turn";
}

TEST_F(StreamWatchTest, ForgetsWhatIsGone) {
  Watched();
  const auto stream = Watched();
  EXPECT_EQ(watch_.size(), 2);
  EXPECT_EQ(Pass(1), 0);
  EXPECT_EQ(watch_.size(), 1);
}

}  // namespace
}  // namespace lodestar::rpc
