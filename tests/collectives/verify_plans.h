// Plans written by hand, and how the verifier's tests ask about them.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "collectives/text/text.h"
#include "collectives/verify.h"

namespace tutti {

/// The plan of `text`, whose first line, the version, is left out.
inline Plan parse(const std::string& text) { return plan_from_text("tutti plan 1\n" + text); }

inline Verdict check(const std::string& text, bool in_place = false) {
  return verify(parse(text), {.in_place = in_place});
}

inline void expect_proved(const std::string& text, bool in_place = false) {
  const Verdict v = check(text, in_place);
  EXPECT_TRUE(v.proved) << v.story << "\n" << text;
  EXPECT_EQ(v.story, "");
}

/// Refuted, with a story that contains all of `parts`.
inline void expect_refuted(const std::string& text, const std::vector<std::string>& parts,
                           bool in_place = false) {
  const Verdict v = check(text, in_place);
  EXPECT_FALSE(v.proved) << text;
  for (const std::string& part : parts) {
    EXPECT_NE(v.story.find(part), std::string::npos) << "no \"" << part << "\" in: " << v.story;
  }
}

/// `text` with the first `what` replaced.
inline std::string with(std::string text, const std::string& what, const std::string& by) {
  const auto at = text.find(what);
  if (at == std::string::npos) throw std::logic_error("no \"" + what + "\" in\n" + text);
  return text.replace(at, what.size(), by);
}

inline const std::string kRing2 = R"(all_reduce ring  ranks 2  pieces 2  slots 2  lanes 1
rank 0
  lane 0
    to(1) <- in[1]
    out[0], to(1) <= from(1) + in[0]
    out[1] <- from(1)
rank 1
  lane 0
    to(0) <- in[0]
    out[1], to(0) <= from(0) + in[1]
    out[0] <- from(0)
)";

inline const std::string kRing3 = R"(all_reduce ring  ranks 3  pieces 3  slots 2  lanes 1
rank 0
  lane 0
    to(1) <- in[2]
    to(1) <- from(2) + in[1]
    out[0], to(1) <= from(2) + in[0]
    out[2], to(1) <- from(2)
    out[1] <- from(2)
rank 1
  lane 0
    to(2) <- in[0]
    to(2) <- from(0) + in[2]
    out[1], to(2) <= from(0) + in[1]
    out[0], to(2) <- from(0)
    out[2] <- from(0)
rank 2
  lane 0
    to(0) <- in[1]
    to(0) <- from(1) + in[0]
    out[2], to(0) <= from(1) + in[2]
    out[1], to(0) <- from(1)
    out[0] <- from(1)
)";

// Every rank reduces its chunk out of all windows and writes it into all of them.
inline const std::string kTwoShot2 =
    R"(all_reduce two_shot_window  ranks 2  pieces 2  slots 1  lanes 1
rank 0
  lane 0
    to(1) <- ()
    () <- from(1)
    out[0], out[0]@1 <= in[0] + in[0]@1
    to(1) <- ()
    () <- from(1)
rank 1
  lane 0
    to(0) <- ()
    () <- from(0)
    out[1], out[1]@0 <= in[1]@0 + in[1]
    to(0) <- ()
    () <- from(0)
)";

// Lane 0 receives into tmp, lane 1 takes it from there; a link from the rank to itself says when.
inline const std::string kHandOver = R"(send_recv hand_over  ranks 1  pieces 1  slots 1  lanes 2
rank 0  tmp 1
  lane 0
    tmp[0] <- in[0]
    to(0).2 <- ()
    () <- from(0).3
  lane 1
    () <- from(0).2
    out[0] <- tmp[0]
    to(0).3 <- ()
)";

inline const std::string kExchange = R"(all_reduce exchange  ranks 2  pieces 1  slots 1  lanes 1
rank 0
  lane 0
    out[0], to(1) <- in[0]
    out[0] <= out[0] + from(1)
rank 1
  lane 0
    out[0], to(0) <- in[0]
    out[0] <= from(0) + out[0]
)";

}  // namespace tutti
