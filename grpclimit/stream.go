package grpclimit

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

// serverStream is a stream of a server whose messages may be limited.
type serverStream struct {
	grpc.ServerStream
	ctx     context.Context
	shared  *interceptor
	method  string
	refused error // of a message
}

func (s *serverStream) Context() context.Context { return s.ctx }

func (s *serverStream) RecvMsg(m any) error {
	if s.refused != nil {
		return s.refused
	}
	if err := s.ServerStream.RecvMsg(m); err != nil || s.shared.messages == nil {
		return err
	}
	if err := s.shared.admitMessage(s.ctx, s.method, m); err != nil {
		s.refused = err
		s.shared.pushBack(err, s.SetTrailer)
		return err
	}
	return nil
}

// clientStream is a stream of a client. end settles the attempts once, and cancels the stream.
type clientStream struct {
	grpc.ClientStream
	ctx      context.Context
	shared   *interceptor
	method   string
	response bool // the server sends one message only
	end      func(codes.Code)

	mu      sync.Mutex
	refused error // of a message
}

func (s *clientStream) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	if err != nil {
		err = s.ended(err)
	}
	return md, err
}

func (s *clientStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	switch {
	case err != nil:
		err = s.ended(err)
	case s.response:
		s.end(codes.OK)
	}
	return err
}

func (s *clientStream) SendMsg(m any) error {
	if s.shared.messages != nil {
		if err := s.admit(m); err != nil {
			return err
		}
	}
	err := s.ClientStream.SendMsg(m)
	if err != nil && !errors.Is(err, io.EOF) { // RecvMsg has the status after io.EOF
		err = s.ended(err)
	}
	return err
}

// admit decides a message. The stream ends if the message is refused. It returns io.EOF if the
// stream has ended already, as SendMsg of grpc-go does: RecvMsg has the status.
func (s *clientStream) admit(m any) error {
	if err := s.refusal(); err != nil {
		return err
	}
	if s.ctx.Err() != nil {
		return io.EOF
	}
	err := s.shared.admitMessage(s.ctx, s.method, m)
	switch {
	case err == nil:
		return nil
	case s.ctx.Err() != nil: // while the message waited
		return io.EOF
	}
	s.mu.Lock()
	s.refused = err
	s.mu.Unlock()
	s.end(codeOf(err))
	return err
}

func (s *clientStream) refusal() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// ended ends the stream with err, and returns the error for the caller: the refusal of a message if
// that is why the stream was canceled, else err.
func (s *clientStream) ended(err error) error {
	if refused := s.refusal(); refused != nil {
		return refused
	}
	if errors.Is(err, io.EOF) {
		s.end(codes.OK)
	} else {
		s.end(codeOf(err))
	}
	return err
}
