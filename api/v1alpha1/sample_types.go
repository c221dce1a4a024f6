package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SamplePhase says how far the agent has come with a sample.
// +kubebuilder:validation:Enum=Running;Finished;Failed
type SamplePhase string

const (
	// SampleRunning means that the window has begun.
	SampleRunning SamplePhase = "Running"
	// SampleFinished means that the window is over, and mounts holds what was counted in it.
	SampleFinished SamplePhase = "Finished"
	// SampleFailed means that there is no sample; the message says why. Ask again with another id.
	SampleFailed SamplePhase = "Failed"
)

// NodeSample asks for one sample of what the mounts of some volumes do. The agent reads counters at the beginning and at the end of the
// window, touches no mount, and changes nothing.
type NodeSample struct {
	// id identifies the request; an agent answers one once.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9-]+$`
	ID string `json:"id"`

	// seconds is how long the window is: 10 to 3600 s.
	// +required
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=3600
	Seconds int32 `json:"seconds"`

	// volumes are the names of the PersistentVolumes whose mounts are sampled: 1 to 8.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
	Volumes []string `json:"volumes,omitempty"`

	// startBefore is when the window must have begun, by the node's clock: later, nobody waits for it any more, and the sample fails.
	// Without it, somebody always does.
	// +optional
	StartBefore *metav1.Time `json:"startBefore,omitempty"`
}

// NodeSampleStatus is the answer to spec.sample. All of it fits into 64 KiB.
type NodeSampleStatus struct {
	// id is that of the request.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`

	// phase is Running, Finished or Failed.
	// +required
	Phase SamplePhase `json:"phase"`

	// message says why there is no sample.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// startTime is when the window began, by the node's clock.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// milliseconds is how long the window was in the end.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Milliseconds int64 `json:"milliseconds,omitempty"`

	// mounts are the samples: one for each file system (superblock), under one of its mount points. A mount that came or went in the
	// window is left out.
	// +optional
	// +listType=map
	// +listMapKey=mountPoint
	// +kubebuilder:validation:MaxItems=32
	Mounts []MountSample `json:"mounts,omitempty"`

	// mountsOmitted is how many samples did not fit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MountsOmitted int32 `json:"mountsOmitted,omitempty"`
}

// MountSample is what the counters of one mount did over the window. All numbers are differences over it unless they say otherwise.
type MountSample struct {
	// mountPoint is where it is mounted on the host.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	MountPoint string `json:"mountPoint"`

	// volume is the PersistentVolume that the mount belongs to.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Volume string `json:"volume"`

	// server is the server's name or address as the kernel shows it; empty for a local file system.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Server string `json:"server,omitempty"`

	// export is what is mounted of the server.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Export string `json:"export,omitempty"`

	// protocol is the file system type and version, e.g. NFSv4.1.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Protocol string `json:"protocol,omitempty"`

	// options are the options in force, those longer than 64 characters left out.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=48
	// +kubebuilder:validation:items:MaxLength=64
	Options []string `json:"options,omitempty"`

	// readAheadKiB is the read-ahead window in KiB.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReadAheadKiB int32 `json:"readAheadKiB,omitempty"`

	// slotLimit is the most requests in flight of each connection of NFSv3 and 4.0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SlotLimit int32 `json:"slotLimit,omitempty"`

	// minRoundTripMicros is the shortest way to the server and back that TCP has ever seen, in microseconds; 0 where it is not known.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinRoundTripMicros int64 `json:"minRoundTripMicros,omitempty"`

	// operations are the kinds of NFS requests that were made in the window.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=80
	Operations []OperationSample `json:"operations,omitempty"`

	// requests is the number of requests of SMB, of which the kernel tells neither kind nor time.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Requests int64 `json:"requests,omitempty"`

	// bytes are what programs asked for, and what went over the wire for them; NFS only.
	// +optional
	Bytes ByteSample `json:"bytes,omitzero"`

	// events are what the file system did for programs; NFS only.
	// +optional
	Events EventSample `json:"events,omitzero"`

	// connections are the transports to the server, which all mounts of the same client share; NFS only.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Connections []ConnectionSample `json:"connections,omitempty"`

	// network is what TCP did on the node, of all connections.
	// +optional
	Network NetworkSample `json:"network,omitzero"`

	// log is what the log of an XFS file system did.
	// +optional
	Log LogSample `json:"log,omitzero"`
}

// OperationSample is one kind of NFS request.
type OperationSample struct {
	// name is the kind, e.g. GETATTR.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Name string `json:"name"`

	// count is how many were completed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Count int64 `json:"count,omitempty"`

	// transmissions is how many were sent, repeated ones included.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Transmissions int64 `json:"transmissions,omitempty"`

	// errors is how many ended with one.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Errors int64 `json:"errors,omitempty"`

	// bytesSent is how much was sent for all of them, headers included.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BytesSent int64 `json:"bytesSent,omitempty"`

	// bytesReceived is how much was received for all of them, headers included.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BytesReceived int64 `json:"bytesReceived,omitempty"`

	// queueMillis is how long all of them waited before they were sent, in milliseconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	QueueMillis int64 `json:"queueMillis,omitempty"`

	// roundTripMillis is how long all of them took from there to the answer, in milliseconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RoundTripMillis int64 `json:"roundTripMillis,omitempty"`

	// executionMillis is how long all of them took as a whole, in milliseconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ExecutionMillis int64 `json:"executionMillis,omitempty"`
}

// ByteSample is what programs asked for, and what went over the wire for them.
type ByteSample struct {
	// read is what was read through the page cache.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Read int64 `json:"read,omitempty"`

	// written is what was written through the page cache.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Written int64 `json:"written,omitempty"`

	// directRead is what was read past the page cache (O_DIRECT).
	// +optional
	// +kubebuilder:validation:Minimum=0
	DirectRead int64 `json:"directRead,omitempty"`

	// directWritten is what was written past the page cache.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DirectWritten int64 `json:"directWritten,omitempty"`

	// wireRead is what was read over the wire.
	// +optional
	// +kubebuilder:validation:Minimum=0
	WireRead int64 `json:"wireRead,omitempty"`

	// wireWritten is what was written over the wire.
	// +optional
	// +kubebuilder:validation:Minimum=0
	WireWritten int64 `json:"wireWritten,omitempty"`
}

// EventSample is what the file system did for programs.
type EventSample struct {
	// opens is the number of calls of open.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Opens int64 `json:"opens,omitempty"`

	// flushes is the number of calls of close after writing.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Flushes int64 `json:"flushes,omitempty"`

	// syncs is the number of calls of fsync.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Syncs int64 `json:"syncs,omitempty"`

	// dataInvalidations is how often cached content was dropped, since somebody else had changed it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DataInvalidations int64 `json:"dataInvalidations,omitempty"`

	// listings is the number of calls of getdents.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Listings int64 `json:"listings,omitempty"`
}

// ConnectionSample is one transport to the server.
type ConnectionSample struct {
	// connects is how often it was connected.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Connects int64 `json:"connects,omitempty"`

	// sends is the number of requests sent.
	// +required
	// +kubebuilder:validation:Minimum=0
	Sends int64 `json:"sends"`

	// answers is the number of answers received.
	// +required
	// +kubebuilder:validation:Minimum=0
	Answers int64 `json:"answers"`

	// backlog is the sum, over all sends, of the requests that waited for a slot then.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Backlog int64 `json:"backlog,omitempty"`

	// inFlight is how many requests had no answer at the end of the window.
	// +optional
	// +kubebuilder:validation:Minimum=0
	InFlight int64 `json:"inFlight,omitempty"`

	// idleSeconds is since when none had ended then, in seconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	IdleSeconds int64 `json:"idleSeconds,omitempty"`
}

// NetworkSample is what TCP counted.
type NetworkSample struct {
	// inSegments is the number of segments received.
	// +optional
	// +kubebuilder:validation:Minimum=0
	InSegments int64 `json:"inSegments,omitempty"`

	// outSegments is the number of segments sent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	OutSegments int64 `json:"outSegments,omitempty"`

	// retransmitted is the number of segments sent again.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Retransmitted int64 `json:"retransmitted,omitempty"`

	// outOfOrder is the number of segments that came before one that was missing.
	// +optional
	// +kubebuilder:validation:Minimum=0
	OutOfOrder int64 `json:"outOfOrder,omitempty"`
}

// LogSample is what the log of an XFS file system counted.
type LogSample struct {
	// writes is the number of writes to the log.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Writes int64 `json:"writes,omitempty"`

	// noBuffer is how many writers found all log buffers full.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NoBuffer int64 `json:"noBuffer,omitempty"`

	// noSpace is how many waited for space in the log.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NoSpace int64 `json:"noSpace,omitempty"`
}
