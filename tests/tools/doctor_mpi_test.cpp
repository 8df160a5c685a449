// `tutti doctor --mpi`: what a program needs of MPI, and what of it is refused or not there.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/support/contains.h"
#include "tests/tools/tutti_command.h"

namespace tutti {
namespace {

class MpiProgram : public TuttiCommand {
 protected:
  int look_at(const std::string& files) { return tutti("doctor --mpi " + files); }
};

TEST_F(MpiProgram, WhatIsRefusedAndWhatIsMissingAreToldApart) {
  EXPECT_EQ(look_at("'" MPI_CLIENT "'"), 1);
  EXPECT_CONTAINS(out,
                  "is linked with         libmpi.so.40: Open MPI's interface; `tutti run` puts "
                  "Tutti's library in front\n");
  EXPECT_CONTAINS(out, "! is linked with         libmpi_cxx.so.40: Open MPI's interface for C++\n");
  EXPECT_CONTAINS(out, "needs                  6 procedures of MPI\n");
  EXPECT_CONTAINS(out, "\n! lacks                  MPIX_Of_tomorrow\n");
  EXPECT_CONTAINS(out, "refuses                MPI_Open_port: MPI_ERR_PORT\n");
  EXPECT_CONTAINS(out, "refuses                MPI_File_open: MPI_ERR_UNSUPPORTED_OPERATION\n");
  EXPECT_CONTAINS(out, "refuses                MPI_T_init_thread: MPI_T_ERR_CANNOT_INIT\n");
}

TEST_F(MpiProgram, AProgramWithoutMpiIsNoTrouble) {
  EXPECT_EQ(look_at("/proc/self/exe"), 0);
  EXPECT_CONTAINS(out, "needs                  0 procedures of MPI\n");
  EXPECT_EQ(look_at("missing"), 1);
  EXPECT_CONTAINS(out, "missing\n! the file               cannot be read");
}

}  // namespace
}  // namespace tutti
