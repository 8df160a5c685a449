// Sends and receives: modes, matching, probes, requests.
#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

#include "tests/bindings/mpi/cases/cases.h"

namespace tutti::test {
namespace {

int right() { return (rank() + 1) % size(); }
int left() { return (rank() + size() - 1) % size(); }

MPI_CASE(AMessageOfAnyLengthArrivesWhole) {
  for (const std::size_t n : kCounts) {
    const std::vector<int> out = data(rank(), n);
    std::vector<int> in(n + 1, -1);
    MPI_Status status;
    MPI_Sendrecv(out.data(), static_cast<int>(n), MPI_INT, right(), 5, in.data(),
                 static_cast<int>(n), MPI_INT, left(), 5, MPI_COMM_WORLD, &status);
    std::vector<int> expected = data(left(), n);
    expected.push_back(-1);
    EXPECT(in == expected);
    EXPECT(status.MPI_SOURCE == left() && status.MPI_TAG == 5);
    EXPECT(count_of(status) == static_cast<int>(n));
  }
}

MPI_CASE(EveryModeDelivers) {
  std::vector<char> room(8 << 20);
  MPI_Buffer_attach(room.data(), static_cast<int>(room.size()));
  using Send = int (*)(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);
  const std::vector<Send> modes{MPI_Isend, MPI_Issend, MPI_Ibsend, MPI_Irsend};
  for (std::size_t mode = 0; mode < modes.size(); ++mode) {
    for (const std::size_t n : kCounts) {
      const int use = static_cast<int>(mode);
      std::vector<int> in(n);
      MPI_Request requests[2];
      MPI_Irecv(in.data(), static_cast<int>(n), MPI_INT, left(), use, MPI_COMM_WORLD, &requests[0]);
      MPI_Barrier(MPI_COMM_WORLD);  // the receive is there, as MPI_Rsend wants
      const std::vector<int> out = data(rank(), n, use);
      modes[mode](out.data(), static_cast<int>(n), MPI_INT, right(), use, MPI_COMM_WORLD,
                  &requests[1]);
      MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
      EXPECT(in == data(left(), n, use));
    }
  }
  void* detached = nullptr;
  int bytes = 0;
  MPI_Buffer_detach(&detached, &bytes);
  EXPECT(detached == room.data() && bytes == static_cast<int>(room.size()));
}

MPI_CASE(ASynchronousSendWaitsForItsReceive) {
  int flag = -1;
  const int value = datum(rank(), 1);
  MPI_Request send;
  MPI_Issend(&value, 1, MPI_INT, right(), 9, MPI_COMM_WORLD, &send);
  for (int i = 0; i < 100; ++i) MPI_Test(&send, &flag, MPI_STATUS_IGNORE);
  EXPECT(flag == 0);
  MPI_Barrier(MPI_COMM_WORLD);
  int got = 0;
  MPI_Recv(&got, 1, MPI_INT, left(), 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  EXPECT(got == datum(left(), 1));
  MPI_Wait(&send, MPI_STATUS_IGNORE);
  EXPECT(send == MPI_REQUEST_NULL);
}

MPI_CASE(MessagesOfOneTagKeepTheirOrder) {
  constexpr int kMany = 2000;
  std::vector<MPI_Request> sends(kMany);
  std::vector<int> values(kMany);
  for (int i = 0; i < kMany; ++i) {
    values[static_cast<std::size_t>(i)] = datum(rank(), static_cast<std::size_t>(i));
    MPI_Isend(&values[static_cast<std::size_t>(i)], 1, MPI_INT, right(), i % 3, MPI_COMM_WORLD,
              &sends[static_cast<std::size_t>(i)]);
  }
  for (int tag = 2; tag >= 0; --tag) {
    for (int i = tag; i < kMany; i += 3) {
      int got = 0;
      MPI_Recv(&got, 1, MPI_INT, left(), tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      EXPECT(got == datum(left(), static_cast<std::size_t>(i)));
    }
  }
  MPI_Waitall(kMany, sends.data(), MPI_STATUSES_IGNORE);
}

MPI_CASE(AnySourceAndAnyTagTakeTheOldestMessage) {
  if (rank() != 0) {
    for (int i = 0; i < 20; ++i) {
      const int value = datum(rank(), static_cast<std::size_t>(i));
      MPI_Send(&value, 1, MPI_INT, 0, 100 + i, MPI_COMM_WORLD);
    }
    return;
  }
  std::vector<int> next(static_cast<std::size_t>(size()), 0);
  for (int i = 0; i < 20 * (size() - 1); ++i) {
    int got = 0;
    MPI_Status status;
    MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    int& number = next[static_cast<std::size_t>(status.MPI_SOURCE)];
    EXPECT(status.MPI_TAG == 100 + number);
    EXPECT(got == datum(status.MPI_SOURCE, static_cast<std::size_t>(number)));
    ++number;
  }
}

MPI_CASE(AWildReceiveThatWasPostedFirstGoesFirst) {
  int first = 0;
  int second = 0;
  MPI_Request requests[2];
  MPI_Irecv(&first, 1, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &requests[0]);
  MPI_Irecv(&second, 1, MPI_INT, left(), 3, MPI_COMM_WORLD, &requests[1]);
  MPI_Barrier(MPI_COMM_WORLD);
  const int values[] = {datum(rank(), 1), datum(rank(), 2)};
  MPI_Send(&values[0], 1, MPI_INT, right(), 3, MPI_COMM_WORLD);
  MPI_Send(&values[1], 1, MPI_INT, right(), 3, MPI_COMM_WORLD);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  EXPECT(first == datum(left(), 1) && second == datum(left(), 2));
}

MPI_CASE(ManyUnexpectedMessagesComeInReverseOrder) {
  constexpr int kMany = 10000;
  if (rank() != 0) {
    std::vector<int> values(kMany);
    std::vector<MPI_Request> sends(kMany);
    for (int i = 0; i < kMany; ++i) {
      values[static_cast<std::size_t>(i)] = datum(rank(), static_cast<std::size_t>(i));
      MPI_Isend(&values[static_cast<std::size_t>(i)], 1, MPI_INT, 0, i, MPI_COMM_WORLD,
                &sends[static_cast<std::size_t>(i)]);
    }
    MPI_Waitall(kMany, sends.data(), MPI_STATUSES_IGNORE);
    return;
  }
  for (int from = size() - 1; from > 0; --from) {
    for (int i = kMany - 1; i >= 0; --i) {
      int got = 0;
      MPI_Recv(&got, 1, MPI_INT, from, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      EXPECT(got == datum(from, static_cast<std::size_t>(i)));
    }
  }
}

MPI_CASE(WhatIsUnexpectedAndLargeStaysAtTheSender) {
  // 600 messages of 12,000 bytes are more than a receiver keeps of one sender.
  constexpr int kMany = 600;
  constexpr int kInts = 3000;
  std::vector<std::vector<int>> out;
  std::vector<MPI_Request> sends(kMany);
  for (int i = 0; i < kMany; ++i) {
    out.push_back(data(rank(), kInts, i));
    MPI_Isend(out.back().data(), kInts, MPI_INT, right(), i, MPI_COMM_WORLD,
              &sends[static_cast<std::size_t>(i)]);
  }
  for (int i = kMany - 1; i >= 0; --i) {
    std::vector<int> in(kInts);
    MPI_Recv(in.data(), kInts, MPI_INT, left(), i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EXPECT(in == data(left(), kInts, i));
  }
  MPI_Waitall(kMany, sends.data(), MPI_STATUSES_IGNORE);
}

MPI_CASE(AProbedMessageIsReceivedByItsHandleAlone) {
  const std::vector<int> out = data(rank(), 5000);
  MPI_Request send;
  MPI_Isend(out.data(), 5000, MPI_INT, right(), 4, MPI_COMM_WORLD, &send);
  MPI_Status status;
  MPI_Probe(left(), MPI_ANY_TAG, MPI_COMM_WORLD, &status);
  EXPECT(status.MPI_TAG == 4 && count_of(status) == 5000);
  MPI_Message message;
  MPI_Mprobe(MPI_ANY_SOURCE, 4, MPI_COMM_WORLD, &message, &status);
  EXPECT(message != MPI_MESSAGE_NULL && status.MPI_SOURCE == left());
  int flag = -1;
  MPI_Iprobe(left(), 4, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
  EXPECT(flag == 0);
  std::vector<int> in(5000);
  MPI_Mrecv(in.data(), 5000, MPI_INT, &message, &status);
  EXPECT(message == MPI_MESSAGE_NULL && in == data(left(), 5000));
  MPI_Wait(&send, MPI_STATUS_IGNORE);
}

MPI_CASE(APersistentRequestIsStartedAgain) {
  int out = 0;
  int in = 0;
  MPI_Request requests[2];
  MPI_Send_init(&out, 1, MPI_INT, right(), 6, MPI_COMM_WORLD, &requests[0]);
  MPI_Recv_init(&in, 1, MPI_INT, left(), 6, MPI_COMM_WORLD, &requests[1]);
  for (std::size_t i = 0; i < 50; ++i) {
    out = datum(rank(), i);
    MPI_Startall(2, requests);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    EXPECT(requests[0] != MPI_REQUEST_NULL && in == datum(left(), i));
  }
  MPI_Request_free(&requests[0]);
  MPI_Request_free(&requests[1]);
}

MPI_CASE(ACancelledReceiveLeavesTheMessageToOthers) {
  int never = -1;
  int got = -1;
  MPI_Request request;
  MPI_Irecv(&never, 1, MPI_INT, left(), 8, MPI_COMM_WORLD, &request);
  MPI_Cancel(&request);
  MPI_Status status;
  MPI_Wait(&request, &status);
  int cancelled = 0;
  MPI_Test_cancelled(&status, &cancelled);
  EXPECT(cancelled == 1);
  MPI_Barrier(MPI_COMM_WORLD);
  const int value = datum(rank(), 3);
  MPI_Send(&value, 1, MPI_INT, right(), 8, MPI_COMM_WORLD);
  MPI_Recv(&got, 1, MPI_INT, left(), 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  EXPECT(never == -1 && got == datum(left(), 3));
}

MPI_CASE(AnyOfSeveralRequestsCompletes) {
  std::vector<int> in(8, -1);
  std::vector<MPI_Request> requests(8);
  for (int i = 0; i < 8; ++i) {
    MPI_Irecv(&in[static_cast<std::size_t>(i)], 1, MPI_INT, left(), i, MPI_COMM_WORLD,
              &requests[static_cast<std::size_t>(i)]);
  }
  for (int i = 7; i >= 0; --i) {
    const int value = datum(rank(), static_cast<std::size_t>(i));
    MPI_Send(&value, 1, MPI_INT, right(), i, MPI_COMM_WORLD);
  }
  int left_over = 8;
  int index = -1;
  MPI_Waitany(8, requests.data(), &index, MPI_STATUS_IGNORE);
  --left_over;
  while (left_over > 0) {
    int indices[8];
    int n = 0;
    MPI_Waitsome(8, requests.data(), &n, indices, MPI_STATUSES_IGNORE);
    EXPECT(n > 0);
    left_over -= n;
  }
  for (std::size_t i = 0; i < 8; ++i) EXPECT(in[i] == datum(left(), i));
  MPI_Waitany(8, requests.data(), &index, MPI_STATUS_IGNORE);
  EXPECT(index == MPI_UNDEFINED);
}

MPI_CASE(AMessageInPlaceReplacesWhatWasSent) {
  for (const std::size_t n : kCounts) {
    std::vector<int> both = data(rank(), n);
    MPI_Sendrecv_replace(both.data(), static_cast<int>(n), MPI_INT, right(), 1, left(), 1,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EXPECT(both == data(left(), n));
  }
}

MPI_CASE(ARankSendsToItself) {
  for (const std::size_t n : kCounts) {
    std::vector<int> in(n);
    const std::vector<int> out = data(rank(), n);
    MPI_Request request;
    MPI_Isend(out.data(), static_cast<int>(n), MPI_INT, rank(), 2, MPI_COMM_WORLD, &request);
    MPI_Recv(in.data(), static_cast<int>(n), MPI_INT, rank(), 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    EXPECT(in == out);
  }
}

MPI_CASE(DataWithHolesGoToDataWithOtherHoles) {
  constexpr int kRows = 3000;
  MPI_Datatype every_second;
  MPI_Datatype every_third;
  MPI_Type_vector(kRows, 1, 2, MPI_INT, &every_second);
  MPI_Type_vector(kRows, 1, 3, MPI_INT, &every_third);
  MPI_Type_commit(&every_second);
  MPI_Type_commit(&every_third);
  const std::vector<int> out = data(rank(), 2 * kRows);
  for (const int rows : {1, 2}) {  // eager, and in parts
    std::vector<int> in(3 * kRows, -1);
    MPI_Sendrecv(out.data(), 1, every_second, right(), rows, in.data(), 1, every_third, left(),
                 rows, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (std::size_t i = 0; i < kRows; ++i) {
      EXPECT(in[3 * i] == datum(left(), 2 * i));
      EXPECT(i + 1 == kRows || (in[3 * i + 1] == -1 && in[3 * i + 2] == -1));
    }
  }
  MPI_Type_free(&every_second);
  MPI_Type_free(&every_third);
}

MPI_CASE(ThreadsOfARankSendAndReceiveSideBySide) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([t] {
      for (std::size_t i = 0; i < 200; ++i) {
        const int out = datum(rank(), i, t);
        int in = 0;
        MPI_Sendrecv(&out, 1, MPI_INT, right(), t, &in, 1, MPI_INT, left(), t, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        EXPECT(in == datum(left(), i, t));
      }
    });
  }
  for (std::thread& t : threads) t.join();
}

MPI_CASE(ThreadsOfARankSendBufferedSideBySide) {
  constexpr int kThreads = 4, kMessages = 500;
  std::vector<char> room(kThreads * kMessages * (sizeof(int) + MPI_BSEND_OVERHEAD));
  MPI_Buffer_attach(room.data(), static_cast<int>(room.size()));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      for (std::size_t i = 0; i < kMessages; ++i) {
        const int out = datum(rank(), i, t);
        EXPECT(MPI_Bsend(&out, 1, MPI_INT, right(), t, MPI_COMM_WORLD) == MPI_SUCCESS);
      }
      for (std::size_t i = 0; i < kMessages; ++i) {
        int in = 0;
        MPI_Recv(&in, 1, MPI_INT, left(), t, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        EXPECT(in == datum(left(), i, t));
      }
    });
  }
  for (std::thread& t : threads) t.join();
  void* memory = nullptr;
  int bytes = 0;
  MPI_Buffer_detach(&memory, &bytes);
  EXPECT(memory == room.data());
}

MPI_CASE(AFlushOfBufferedSendsCanBeStartedAndWaitedForLater) {
  constexpr int kBytes = 100000;
  std::vector<char> room(kBytes + MPI_BSEND_OVERHEAD);
  const std::vector<char> out(kBytes, static_cast<char>(rank()));
  std::vector<char> in(kBytes, -1);
  MPI_Buffer_attach(room.data(), static_cast<int>(room.size()));
  for (int round = 0; round < 2; ++round) {  // there is room for one at a time
    EXPECT(MPI_Bsend(out.data(), kBytes, MPI_BYTE, rank(), 0, MPI_COMM_WORLD) == MPI_SUCCESS);
    MPI_Request flush;
    MPI_Buffer_iflush(&flush);
    int flag = -1;
    MPI_Test(&flush, &flag, MPI_STATUS_IGNORE);
    EXPECT(flag == 0);  // as nobody has received it
    MPI_Recv(in.data(), kBytes, MPI_BYTE, rank(), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EXPECT(in == out);
    MPI_Wait(&flush, MPI_STATUS_IGNORE);
  }
  void* memory = nullptr;
  int bytes = 0;
  MPI_Buffer_detach(&memory, &bytes);
  EXPECT(memory == room.data());
}

MPI_CASE(ShortMessagesGoThoughTheirReceiverIsInACollective) {
  constexpr int kMany = 20000;  // more than there is room for at once
  if (rank() == 0) {
    for (int i = 0; i < kMany; ++i) {
      const int value = datum(0, static_cast<std::size_t>(i), 2);
      MPI_Send(&value, 1, MPI_INT, size() - 1, 4, MPI_COMM_WORLD);
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank() != size() - 1) return;
  for (int i = 0; i < kMany; ++i) {
    int value = 0;
    MPI_Recv(&value, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EXPECT(value == datum(0, static_cast<std::size_t>(i), 2));
  }
}

MPI_CASE(AnotherThreadsMessagesMoveWhileThisOneIsInACollective) {
  // Even ranks are in a barrier when another thread begins messages with the next rank, and leaves.
  const bool waits = rank() % 2 == 0;
  const int other = waits ? rank() + 1 : rank() - 1;
  if (other == size()) {
    MPI_Barrier(MPI_COMM_WORLD);
    return;
  }
  const std::size_t n = 300001;
  if (!waits) {
    std::vector<int> in(n);
    MPI_Recv(in.data(), static_cast<int>(n), MPI_INT, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EXPECT(in == data(other, n));
    const int word = datum(rank(), 5);
    MPI_Ssend(&word, 1, MPI_INT, other, 2, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    return;
  }
  const std::vector<int> out = data(rank(), n);
  int word = 0;
  MPI_Request requests[2];
  std::thread begins([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    MPI_Isend(out.data(), static_cast<int>(n), MPI_INT, other, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&word, 1, MPI_INT, other, 2, MPI_COMM_WORLD, &requests[1]);
  });
  MPI_Barrier(MPI_COMM_WORLD);
  begins.join();
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  EXPECT(word == datum(other, 5));
}

MPI_CASE(AReceiveFromNobodyTakesNoType) {
  MPI_Status status;
  EXPECT(MPI_Recv(nullptr, 0, MPI_DATATYPE_NULL, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &status) ==
         MPI_SUCCESS);
  EXPECT(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG);
}

}  // namespace
}  // namespace tutti::test
