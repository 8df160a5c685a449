// `tutti doctor --nccl-client`: what a library needs of NCCL, and what of it is not there.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/support/contains.h"
#include "tests/tools/tutti_command.h"

namespace tutti {
namespace {

class NcclClient : public TuttiCommand {
 protected:
  int look_at(const std::string& files) { return tutti("doctor --nccl-client " + files); }
};

TEST_F(NcclClient, WhatTheLibraryLacksIsMarked) {
  EXPECT_EQ(look_at("'" NCCL_CLIENT "'"), 1);
  EXPECT_CONTAINS(out, "needs                  5 functions of NCCL\n");
  EXPECT_CONTAINS(out, "\n! lacks                  ncclOfTomorrow\n");
  EXPECT_CONTAINS(out, "may lack               ncclPerhapsOfTomorrow, a weak symbol\n");
  EXPECT_CONTAINS(out, "refuses                ncclDevCommCreate: communication inside CUDA");
  EXPECT_EQ(out.find('!'), out.rfind('!')) << out;
}

TEST_F(NcclClient, NamesAmongTheConstantsAreListedApart) {
  look_at("'" NCCL_CLIENT "'");
  EXPECT_CONTAINS(out, "may ask for            ncclGetPeerDeviceLeInfo ncclSend\n");
  EXPECT_CONTAINS(out,
                  "refuses                ncclGetPeerDeviceLeInfo: there is no compute fabric");
  EXPECT_CONTAINS(out, "not among NCCL's       ncclDataOfTomorrow\n");
}

TEST_F(NcclClient, ALibraryThatNeedsNothingIsNoTrouble) {
  EXPECT_EQ(look_at("/proc/self/exe"), 0);
  EXPECT_CONTAINS(out, "needs                  0 functions of NCCL\n");
}

TEST_F(NcclClient, WhatIsNoLibraryIsMarked) {
  std::ofstream(folder.path() + "/it's text") << "ncclAllReduce\n";
  // With the same start as a library, and nothing behind it.
  std::ofstream(folder.path() + "/torn")
      .write(std::string("\177ELF\2\1\1\0ncclAllReduce", 22).data(), 22);
  EXPECT_EQ(look_at("\"it's text\" torn missing"), 1);
  EXPECT_CONTAINS(out, "it's text\n! the file               is no program or library (ELF)");
  EXPECT_CONTAINS(out, "torn\n! the file               is no program or library (ELF)");
  EXPECT_CONTAINS(out, "missing\n! the file               cannot be read");
  EXPECT_EQ(look_at(""), 2);
  EXPECT_CONTAINS(err, "--nccl-client has no value");
}

}  // namespace
}  // namespace tutti
